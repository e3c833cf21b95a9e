"""Callers that do not read, or that give up all the time."""

import re
import time
import urllib.request

import grpc
import h2.events
import h2.settings
import pytest
from attacked_server import ATTEND_STREAM, PATIENCE
from grpc import StatusCode
from messages import SMALL, attend_request
from polling import wait_until
from raw_connection import RawConnection

MIB = 1 << 20


def test_a_caller_that_reads_nothing_does_not_keep_its_places(start):
    # Replies of 64 KiB are not forgotten at once; as many as there are places.
    server = start("--max-requests-in-flight", "64", "--reply-timeout", "1s")
    request = attend_request(64, 1, 256)
    with RawConnection(server, window=0) as attacker:
        attacker.settle()
        for _ in range(64):
            attacker.send_all(request)
        server.wait_for_line("--reply-timeout")
        wait_until(lambda: server.call(SMALL) == StatusCode.OK, "others are served")


def test_a_stream_whose_replies_nobody_reads_ends(start):
    server = start("--max-requests-in-flight", "4", "--reply-timeout", "1s")
    request = attend_request(64, 1, 256)  # 64 KiB, and as much back
    with RawConnection(server, window=0) as attacker:
        attacker.settle()
        stream = attacker.send_all(request, ATTEND_STREAM, end=False)
        attacker.send_on(stream, request)
        server.wait_for_line("--reply-timeout")
        wait_until(lambda: server.call(SMALL) == StatusCode.OK, "others are served")


def test_others_are_served_beside_1024_tiny_calls_that_nobody_reads(start):
    server = start()
    connections = [RawConnection(server, window=0) for _ in range(4)]
    for attacker in connections:
        attacker.settle()
        for _ in range(256):
            attacker.send(SMALL)
            attacker.flush()
    assert server.call(SMALL) == StatusCode.OK
    assert server.memory() < 256 * MIB
    for attacker in connections:
        attacker.close()


def test_streams_beyond_the_limit_are_refused(start):
    server = start("--max-streams-per-connection", "100")
    before = server.memory()
    with RawConnection(server) as attacker:
        attacker.settle()
        limit = attacker.http.remote_settings.max_concurrent_streams
        assert limit == 100
        # As if it had told no limit, which h2 would keep.
        settings = attacker.http.remote_settings
        settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 100_000
        settings.acknowledge()
        try:
            for _ in range(20_000):
                attacker.begin()
                attacker.flush()
        except ConnectionError:
            pass
        assert server.call(SMALL) == StatusCode.OK, "while they are open"
    assert server.call(SMALL) == StatusCode.OK
    assert server.memory() - before < 100 * MIB


def test_a_storm_of_resets_closes_its_connection(start):
    server = start()
    with RawConnection(server) as attacker:
        attacker.settle()
        closed = False
        for _ in range(20_000):
            stream = attacker.begin()
            attacker.http.reset_stream(stream, 8)  # CANCEL
            try:
                attacker.flush()
            except ConnectionError:
                closed = True
                break
        assert closed
    assert server.call(SMALL) == StatusCode.OK
    # For its resets, or for the calls that gRPC had not ended by then: whichever is seen first.
    closed = re.compile(r"closed (a connection|\d+ connections)")
    wait_until(lambda: closed.search(server.log()), "a line of the log")
    assert server.log().count("\n") < 10


def test_names_of_methods_that_do_not_exist_are_not_kept(start):
    server = start()

    def page():
        url = f"http://{server.host}:{server.http_port}/metrics"
        return urllib.request.urlopen(url).read()

    def call_some(begin):
        with server.channel() as channel:
            for n in range(begin, begin + 1000):
                method = f"/a.Service/{n}{'x' * 4096}"
                with pytest.raises(grpc.RpcError) as refused:
                    channel.unary_unary(method)(b"", timeout=PATIENCE)
                assert refused.value.code() == StatusCode.UNIMPLEMENTED

    call_some(0)
    size, memory = len(page()), server.memory()
    call_some(1000)
    with RawConnection(server) as attacker:
        attacker.settle()
        attacker.send_all(b"", b"/a.Service/\xff\xfe")
        events = []
        while not any(isinstance(e, h2.events.StreamEnded) for e in events):
            events = attacker.receive()
    assert len(page()) < size + 4096, "but for numbers that are longer"
    page().decode()  # as Prometheus reads it
    assert server.memory() < memory + 16 * MIB


def test_unfinished_headers_end_in_bounded_time(start):
    server = start()
    with RawConnection(server) as attacker:
        attacker.settle()
        # HEADERS without END_HEADERS, then CONTINUATION frames of one field that
        # does not end.
        head = b"\x00" + b"\x7f\xff\xff\xff\x07"
        attacker.socket.settimeout(60)
        begin = time.monotonic()
        sent = 0
        try:
            attacker.socket.sendall(b"\x00\x00\x06\x01\x00\x00\x00\x00\x01" + head)
            while sent < 4 * MIB:
                attacker.socket.sendall(b"\x00\x40\x00\x09\x00\x00\x00\x00\x01" + b"a" * 16384)
                sent += 16384
        except (ConnectionError, TimeoutError):
            pass
        print("CONTINUATION", sent, time.monotonic() - begin)
    assert server.call(SMALL) == StatusCode.OK
    assert server.most_memory() < 512 * MIB


def test_a_caller_that_leaves_its_socket_full_does_not_keep_its_places(start):
    # All windows are open, so gRPC has handed the replies to a socket that takes
    # no more. Only those calls have places; the others would wait behind them.
    server = start("--max-requests-in-flight", "4", "--reply-timeout", "1s")
    request = attend_request(512, 1, 1, value_width=2048)  # 10 KiB, and 4 MiB back
    with RawConnection(server, window=(1 << 31) - 1, receive_buffer=4096) as attacker:
        attacker.http.increment_flow_control_window((1 << 31) - 1 - 65535)
        attacker.settle()
        for _ in range(4):
            attacker.send_all(request)
        server.wait_for_line("--reply-timeout")
        wait_until(lambda: server.call(SMALL) == StatusCode.OK, "others are served")
