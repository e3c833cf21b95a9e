"""Callers over the Unix-domain socket: each process is a caller of its own."""

import os
import socket
import subprocess
import sys
import types

import grpc
import pytest
from attacked_server import ATTEND
from messages import SMALL, attend_request
from polling import wait_until
from raw_connection import RawConnection


def connect(path, **options):
    return RawConnection(types.SimpleNamespace(host=path, address="localhost"), **options)


def call(path):
    """The code that a call of its own connection ends with."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    with grpc.insecure_channel(f"unix:{path}", options) as channel:
        try:
            channel.unary_unary(ATTEND)(SMALL, timeout=60)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_a_reader_that_does_not_read_is_closed(start, tmp_path):
    # All windows are open, so gRPC has handed the replies to a socket that takes
    # no more, and gives nothing back before that ends.
    path = str(tmp_path / "s")
    server = start(
        "--grpc-unix-socket", path, "--max-requests-in-flight", "4", "--reply-timeout", "1s"
    )
    request = attend_request(512, 1, 1, value_width=2048)  # 10 KiB, and 4 MiB back
    with connect(path, window=(1 << 31) - 1) as attacker:
        attacker.http.increment_flow_control_window((1 << 31) - 1 - 65535)
        attacker.settle()
        for _ in range(4):
            attacker.send_all(request)
        server.wait_for_line("--reply-timeout")
        wait_until(lambda: call(path) == grpc.StatusCode.OK, "others are served")


def test_a_storm_of_resets_closes_its_connection(start, tmp_path):
    path = str(tmp_path / "s")
    server = start("--grpc-unix-socket", path)
    with connect(path) as attacker:
        attacker.settle()
        try:
            for _ in range(20_000):
                attacker.http.reset_stream(attacker.begin(), 8)  # CANCEL
                attacker.flush()
        except ConnectionError:
            pass
        else:
            assert False, "not closed"
    assert call(path) == grpc.StatusCode.OK
    server.wait_for_line("closed a connection of")


@pytest.mark.parametrize("named", [False, True], ids=["unnamed", "named"])
def test_one_process_leaves_connections_to_others(start, tmp_path, named):
    # A name that it gives to its end of the socket, here an abstract one that
    # looks like another process's, changes nothing.
    path = str(tmp_path / "s")
    server = start("--grpc-unix-socket", path, "--max-connections-per-peer", "4")
    names = [f"\0{os.getpid() + 1}.0.{i}" if named else None for i in range(4)]
    connections = [connect(path, name=name) for name in names]
    for connection in connections:
        connection.settle()
    with socket.socket(socket.AF_UNIX) as fifth:
        fifth.settimeout(60)
        fifth.connect(path)
        assert fifth.recv(1) == b"", "closed"
    server.wait_for_line(f"process {os.getpid()} of user {os.getuid()}")
    other = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(60);"
        "s.connect(sys.argv[1]);"
        r"s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0');"
        "sys.exit(0 if s.recv(9) else 1)"
    )
    assert subprocess.run([sys.executable, "-c", other, path], timeout=60).returncode == 0
    for connection in connections:
        connection.close()
