"""What one caller over HTTP does must not keep others, and probes, waiting."""

import socket
import ssl
import threading
import time

import pytest
from attacked_server import PATIENCE
from certificates import RSA4096, make_certificates, server_flags
from http_callers import (
    INFER,
    PROBE_TIME,
    Attack,
    ask,
    connect,
    infer,
    pipelining,
    read_all,
    slowest_probe,
)
from polling import wait_until

MIB = 1 << 20
PAUSE = 10  # seconds that a body may stop, as docs/operations/limits.md says


def test_requests_sent_ahead_keep_no_probe_waiting(start):
    server = start()
    metrics = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    def connect_alone():
        connect(server).close()

    with Attack(pipelining(server, metrics), threads=60), Attack(connect_alone):
        assert slowest_probe(server) < PROBE_TIME


def test_a_storm_of_connections_keeps_no_probe_waiting(start):
    server = start()
    kept = []

    def connect_and_stay():
        kept.append(connect(server))
        if len(kept) > 2000:
            kept.pop(0).close()

    with Attack(connect_and_stay, threads=2):
        assert slowest_probe(server) < PROBE_TIME
    for connection in kept:
        connection.close()


def test_idle_connections_make_room(start):
    server = start(descriptors=1024)  # 56 connections of one address, 16 for probes
    attackers = [connect(server) for _ in range(200)]
    try:
        assert infer(server) == 200
        assert server.open_files() < 200
        assert slowest_probe(server) < PROBE_TIME
    finally:
        for attacker in attackers:
            attacker.close()


def test_a_connection_in_use_outlives_idle_ones(start):
    server = start(descriptors=1024)
    idle = []
    with connect(server) as used:
        for _ in range(200):
            used.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert used.recv(4096).startswith(b"HTTP/1.1 200")
            idle.append(connect(server))
    for connection in idle:
        connection.close()


def test_where_all_connections_are_busy_probes_have_places(start):
    server = start(descriptors=1024)
    attackers = [connect(server) for _ in range(100)]
    head = f"POST {INFER} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{{".encode()

    def begin_body(attacker):
        try:
            attacker.sendall(head)
        except ConnectionError:
            pass  # refused

    def all_are_busy():
        if infer(server) == 503:
            return True
        # It may have had the place of an attacker whose head was not read yet, and left it free.
        attackers.append(connect(server))
        begin_body(attackers[-1])
        return False

    try:
        for attacker in attackers:
            begin_body(attacker)
        wait_until(all_are_busy, "all are busy")
        assert slowest_probe(server) < PROBE_TIME
        assert ask(server, "GET", "/metrics")[0] == 200
    finally:
        for attacker in attackers:
            attacker.close()
    wait_until(lambda: infer(server) == 200, "room for others")


def test_an_unfinished_body_leaves_room_and_is_given_up(start):
    server = start("--memory-limit", "512MiB")
    begin = time.monotonic()
    with connect(server) as attacker:
        size = 31 * MIB  # nearly all that one may have
        attacker.sendall(
            f"POST {INFER} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n".encode()
        )
        attacker.sendall(b" " * (size - 1))
        others = [
            threading.Thread(target=lambda: statuses.append(infer(server))) for _ in range(8)
        ]
        statuses = []
        for other in others:
            other.start()
        for other in others:
            other.join()
        assert statuses == [200] * 8
        assert read_all(attacker) == b""
    assert PAUSE - 2 < time.monotonic() - begin < 3 * PAUSE


def test_a_body_of_a_byte_now_and_then_is_given_up(start):
    server = start()
    begin = time.monotonic()
    with connect(server) as attacker:
        attacker.sendall(
            f"POST {INFER} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n".encode()
        )
        attacker.settimeout(0.5)
        while time.monotonic() < begin + PATIENCE:
            try:
                attacker.sendall(b" ")
                if not attacker.recv(1):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert time.monotonic() - begin < 3 * PAUSE


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"), RSA4096)


def test_replayed_handshakes_keep_no_probe_and_no_caller_waiting(start, certificates):
    server = start(*map(str, server_flags(certificates, mutual=False)))
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    out = ssl.MemoryBIO()
    caller = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        caller.do_handshake()
    hello = out.read()

    def replay():
        attackers = [connect(server) for _ in range(100)]
        for attacker in attackers:
            attacker.sendall(hello)
        for attacker in attackers:
            attacker.recv(1)
            attacker.close()

    with socket.create_connection(("127.0.0.1", server.http_port), PATIENCE) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as known:
            with Attack(replay, threads=4):
                assert slowest_probe(server) < PROBE_TIME
                for _ in range(20):
                    begin = time.monotonic()
                    known.sendall(b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                    assert known.recv(4096).startswith(b"HTTP/1.1 200")
                    assert time.monotonic() - begin < PROBE_TIME
