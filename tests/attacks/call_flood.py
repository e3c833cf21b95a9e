"""Many calls that are begun and left open, with as few bytes as HTTP/2 allows."""

import socket
import struct

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4  # RFC 9113, section 6
ACK = END_STREAM = 1
END_HEADERS = 4
EMPTY_MESSAGE = bytes(5)
ELSEWHERE = ("127.0.0.2", 0)  # another address than that of other callers


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def headers(encoder, method):
    return encoder.encode(
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "attacked"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
    )


def connect(server):
    connection = socket.create_connection((server.host, server.port), 60, ELSEWHERE)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return connection


def leave_open(connection, method, calls, acknowledged=False, message=False):
    """Begins calls; how many, if the server has closed the connection by then."""
    encoder = hpack.Encoder()
    first, others = headers(encoder, method), headers(encoder, method)
    frames = [frame(SETTINGS, ACK, 0)] if acknowledged else []
    sent = 0
    try:
        for i in range(calls):
            stream = 2 * i + 1
            frames.append(frame(HEADERS, END_HEADERS, stream, others if i else first))
            if message:
                frames.append(frame(DATA, END_STREAM, stream, EMPTY_MESSAGE))
            if len(frames) >= 256 or i == calls - 1:
                connection.sendall(b"".join(frames))
                frames.clear()
                sent = i + 1
    except OSError:
        pass
    return sent


def is_closed(connection):
    """Whether the server has closed it; reads what it said first."""
    connection.settimeout(0)
    try:
        while connection.recv(1 << 16):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
