"""SIGTERM under load."""

import threading

from attacked_server import ATTEND
from grpc import RpcError, StatusCode
from http_callers import INFER, ONES, connect, infer, read_all
from messages import SMALL
from polling import wait_until


class Load:
    """Small calls from several threads until one is refused."""

    def __init__(self, server, threads):
        self._server = server
        self.codes = {}
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self):
        with self._server.channel() as channel:
            call = channel.unary_unary(ATTEND)
            refused = 0
            while refused < 20:
                code = StatusCode.OK
                try:
                    call(SMALL, timeout=60)
                except RpcError as error:
                    code = error.code()
                    refused += 1
                with self._lock:
                    self.codes[code] = self.codes.get(code, 0) + 1

    def join(self):
        for thread in self._threads:
            thread.join()


def test_calls_are_answered_or_unavailable(start, tmp_path):
    server = start()
    load = Load(server, threads=8)
    wait_until(lambda: load.codes.get(StatusCode.OK, 0) > 200, "calls")
    server.terminate()
    load.join()
    assert server.wait() == 0
    assert set(load.codes) == {StatusCode.OK, StatusCode.UNAVAILABLE}, load.codes


def begin_request(connection):
    """Of inference over HTTP, whose body is then waited for."""
    connection.sendall(
        f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        f"Content-Length: {len(ONES)}\r\n\r\n".encode()
    )
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100 ")


def test_a_request_over_http_that_is_arriving_is_answered(start):
    server = start()
    with connect(server) as connection:
        begin_request(connection)
        connection.sendall(ONES[:-20].encode())
        server.terminate()
        wait_until(lambda: infer(server) == 503, "a drain")
        connection.sendall(ONES[-20:].encode())
        assert read_all(connection).startswith(b"HTTP/1.1 503 ")
    assert server.wait() == 0


def test_a_request_over_http_that_does_not_arrive_was_not_answered(start):
    server = start("--drain-time", "100ms")
    with connect(server) as connection:
        begin_request(connection)
        server.terminate()
        assert server.wait() == 0
    assert "every request was answered" not in server.log()


def test_the_drain_delay_still_serves(start):
    server = start("--drain-delay", "2s")
    server.terminate()
    server.wait_for_line("SIGTERM")
    assert server.call(SMALL) == StatusCode.OK
    assert server.wait() == 0
