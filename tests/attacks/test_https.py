"""Handshakes on the HTTP port that never end, that are no handshakes, and that come in a storm."""

import socket
import ssl
import threading
import time
import urllib.request

import pytest
from attacked_server import PATIENCE
from certificates import RSA4096, make_certificates, server_flags
from polling import wait_until

HANDSHAKE_TIME = 20  # seconds, as docs/operations/access.md says
MIB = 1 << 20


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server(start, certificates):
    return start(*map(str, server_flags(certificates)))


@pytest.fixture(scope="module")
def context(certificates):
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    context.load_cert_chain(certificates / "caller.pem", certificates / "caller.key")
    return context


@pytest.fixture(scope="module")
def hello(context):
    """The first bytes of a caller."""
    out = ssl.MemoryBIO()
    caller = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        caller.do_handshake()
    return out.read()


def connect(server):
    connection = socket.create_connection(("127.0.0.1", server.http_port), PATIENCE)
    connection.settimeout(PATIENCE)
    return connection


def assert_serves(server, context):
    for url, of in [("http", None), ("https", context)]:
        with urllib.request.urlopen(
            f"{url}://127.0.0.1:{server.http_port}/v2/health/ready", timeout=PATIENCE, context=of
        ) as reply:
            assert reply.status == 200


def serves_plain_text(server):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/v2/health/ready").status
    except OSError:
        return None


def ends(connection):
    """Whether the server closes it, within our patience."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_handshakes_that_stop_hold_up_nobody_and_are_ended(server, context, hello):
    files = server.open_files()
    begin = time.monotonic()
    attackers = [connect(server) for _ in range(100)]
    for i, attacker in enumerate(attackers):
        attacker.sendall(hello[: [0, 1, 5, len(hello) // 2, len(hello)][i % 5]])
    assert_serves(server, context)
    assert all(ends(attacker) for attacker in attackers)
    assert time.monotonic() - begin >= HANDSHAKE_TIME - 1  # not for another reason
    for attacker in attackers:
        attacker.close()
    wait_until(lambda: server.open_files() <= files, "the connections closed")


def test_a_handshake_of_a_byte_now_and_then_is_ended(server, hello):
    with connect(server) as attacker:
        ended = threading.Event()

        def send():
            for byte in hello:
                if ended.wait(0.2):
                    return
                try:
                    attacker.sendall(bytes([byte]))
                except OSError:
                    return

        sender = threading.Thread(target=send)
        sender.start()
        assert ends(attacker)
        ended.set()
        sender.join()


@pytest.mark.parametrize("after", [5, 9, 44, 100])
def test_bytes_in_place_of_a_handshake_are_refused(server, context, hello, after):
    noise = bytes((7 * i) % 256 for i in range(MIB))
    with connect(server) as attacker:
        try:
            attacker.sendall(hello[:after] + noise)
        except ConnectionError:
            pass
        assert ends(attacker)
    assert_serves(server, context)


def test_a_storm_of_handshakes_takes_no_memory(server, context):
    def storm():
        for _ in range(100):
            with connect(server) as attacker:
                with context.wrap_socket(attacker, server_hostname="127.0.0.1"):
                    pass

    storm()
    before = server.memory()
    attackers = [threading.Thread(target=storm) for _ in range(4)]
    for attacker in attackers:
        attacker.start()
    for attacker in attackers:
        attacker.join()
    assert_serves(server, context)
    assert server.memory() - before < 16 * MIB


def test_idle_connections_make_room(start, certificates, context):
    server = start(*map(str, server_flags(certificates, mutual=False)), descriptors=1024)
    attackers = []
    try:
        for _ in range(100):  # 56 of one address have a place
            attackers.append(context.wrap_socket(connect(server), server_hostname="127.0.0.1"))
        assert_serves(server, context)
        assert server.open_files() < 160
    finally:
        for attacker in attackers:
            attacker.close()


def test_handshakes_whose_callers_have_gone_hold_no_descriptors(start, tmp_path_factory, hello):
    # Faster than they are computed, whoever they are for.
    slow = make_certificates(tmp_path_factory.mktemp("slow"), RSA4096)
    server = start(*map(str, server_flags(slow, mutual=False)), descriptors=1024)
    most = 0
    for i in range(8000):
        with connect(server) as attacker:
            attacker.sendall(hello)
        if i % 100 == 0:
            most = max(most, server.open_files())
    # 56 connections of one address, 16 for probes, and as many that are being closed.
    assert most < 256
    wait_until(lambda: serves_plain_text(server), "served again")
