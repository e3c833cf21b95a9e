"""Connections that do nothing, or are too many."""

import socket

import h2.events
from attacked_server import connect_to_grpc
from call_flood import is_closed
from grpc import StatusCode
from messages import SMALL
from polling import wait_until
from raw_connection import RawConnection

GOAWAY = 7  # RFC 9113, section 6.8


def frame_types(data):
    types = []
    while data:
        types.append(data[3])
        data = data[9 + int.from_bytes(data[:3], "big") :]
    return types


def test_idle_connections_beyond_the_descriptors(start):
    server = start(descriptors=1024)
    before = server.open_files()
    connections = [connect_to_grpc(server) for _ in range(1100)]
    server.wait_for_line("closed")
    assert server.log().count("closed") <= 3, "one line in 5 s"
    # Half of what fits is left to others: the next address is another peer.
    assert server.open_files() < 1024
    for connection in connections:
        connection.close()
    assert server.call(SMALL) == StatusCode.OK
    wait_until(lambda: server.open_files() <= before + 4, "all descriptors given back")


def test_one_address_leaves_room_for_others(start):
    server = start("--max-connections", "20", "--max-connections-per-peer", "8")
    connections = [connect_to_grpc(server) for _ in range(12)]
    wait_until(lambda: sum(map(is_closed, connections)) == 4, "4 of 12 closed")
    # 127.0.0.1 is full, 127.0.0.2 is not.
    other = socket.create_connection((server.host, server.port), 60, ("127.0.0.2", 0))
    other.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    assert other.recv(9), "the server's settings"
    for connection in [*connections, other]:
        connection.close()


def test_idle_connections_are_closed(start):
    server = start("--connection-idle-timeout", "500ms")
    with connect_to_grpc(server) as silent:
        silent.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        wait_until(lambda: is_closed(silent), "closed")
    assert server.call(SMALL) == StatusCode.OK


def test_connections_that_never_say_what_they_speak_are_closed(start):
    server = start()
    with connect_to_grpc(server) as silent, connect_to_grpc(server) as half:
        half.sendall(b"PRI * HTTP/2.0\r\n")
        wait_until(lambda: is_closed(silent) and is_closed(half), "both closed")
    assert server.call(SMALL) == StatusCode.OK


def test_old_connections_are_given_up_with_the_calls_on_them(start):
    server = start("--max-connection-age", "500ms", "--drain-time", "500ms")
    with RawConnection(server) as old:
        old.begin()  # a call whose message never comes
        old.flush()
        data = b"".join(iter(lambda: old.socket.recv(1 << 16), b""))
    assert GOAWAY in frame_types(data), "new calls go elsewhere"
    assert server.call(SMALL) == StatusCode.OK


def test_half_open_connections_are_closed(start):
    server = start("--keepalive-time", "500ms")
    with connect_to_grpc(server) as gone:  # which answers no ping
        gone.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        wait_until(lambda: is_closed(gone), "closed")
    with RawConnection(server) as silent:  # which does
        pings = 0
        while pings < 3:
            pings += sum(isinstance(e, h2.events.PingReceived) for e in silent.receive())
        silent.send(SMALL)
        silent.flush()
        while not any(isinstance(e, h2.events.StreamEnded) for e in silent.receive()):
            pass
