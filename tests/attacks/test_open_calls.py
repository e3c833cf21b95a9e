"""Calls that are begun and go no further: each takes memory from its first byte."""

import re
import select
import urllib.request

import h2.events
import pytest
from attacked_server import ATTEND, ATTEND_STREAM
from call_flood import connect, is_closed, leave_open
from grpc import StatusCode
from messages import SMALL
from polling import wait_until
from raw_connection import RawConnection

MIB = 1 << 20
WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def start_small(start):
    return start("--memory-limit", "512MiB")


def test_calls_of_a_caller_that_acknowledges_no_settings(start):
    # gRPC 1.51 applies its limit of streams once it was acknowledged.
    server = start_small(start)
    with connect(server) as attacker:
        leave_open(attacker, ATTEND, 60_000)
        wait_until(lambda: is_closed(attacker), "closed")
        assert server.call(SMALL) == StatusCode.OK
    server.wait_for_line("closed 1 connections, the last of 127.0.0.2")
    assert server.most_memory() < 200 * MIB


@pytest.mark.parametrize("method", [ATTEND, ATTEND_STREAM, WATCH, REFLECTION])
def test_calls_over_many_connections(start, method):
    # 250 on each, which the limit of streams allows.
    server = start_small(start)
    connections = []
    for _ in range(160):
        try:
            connections.append(connect(server))
        except OSError:
            break  # too many calls are open for another connection
        leave_open(connections[-1], method, 250, acknowledged=True, message=method == WATCH)
    wait_until(lambda: any(map(is_closed, connections)), "some are closed")
    assert server.call(SMALL) == StatusCode.OK, "others are served meanwhile"
    assert server.most_memory() < 200 * MIB
    for connection in connections:
        connection.close()


def test_idle_reflection_makes_room_for_others(start):
    # Not over the limit of calls, and without a thread for each.
    server = start_small(start)
    before = server.threads()
    with connect(server) as attacker:
        leave_open(attacker, REFLECTION, 200, acknowledged=True)
        wait_until(lambda: metric(server, "grpc_server_started_total") == 200, "all have begun")
        list_services = b"\x3a\x00"
        for name in (REFLECTION, REFLECTION.replace("v1alpha", "v1")):
            with server.channel() as channel:
                stream = channel.stream_stream(name)(iter([list_services]), timeout=60)
                assert b"attention.v1.AttentionService" in next(stream)
    assert server.threads() < before + 20


def test_many_connections_whose_calls_wait_to_be_read(start):
    # Closing takes gRPC longer than accepting: what was closed counts until then.
    server = start_small(start)
    connections = []
    for _ in range(400):
        try:
            connections.append(connect(server))
        except OSError:
            break
        leave_open(connections[-1], ATTEND, 1000)
    wait_until(lambda: any(map(is_closed, connections)), "some are closed")
    assert server.call(SMALL) == StatusCode.OK
    for connection in connections:
        connection.close()
    wait_until(lambda: server.memory() < 100 * MIB, "memory is given back")
    assert server.most_memory() < 300 * MIB


def metric(server, name):
    """The sum of what it has for all of its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as page:
        found = re.findall(rf"^{name}(?:{{.*}})? (\d+)", page.read().decode(), re.M)
    return sum(map(int, found))


def statuses(connection):
    """Those that have come of its streams."""
    found = []
    while select.select([connection.socket], [], [], 0)[0]:
        events = connection.receive()
        assert events is not None, "closed"
        headers = (dict(getattr(event, "headers", None) or {}) for event in events)
        found += [int(of["grpc-status"]) for of in headers if "grpc-status" in of]
    return found


def test_who_keeps_to_the_limit_of_streams_keeps_its_connections(start):
    # 204 calls of an address; 102 on a connection, as the server says.
    server = start("--memory-limit", "64MiB")
    with RawConnection(server) as first, RawConnection(server) as second:
        first.settle()
        second.settle()
        assert first.http.remote_settings.max_concurrent_streams == 102
        for connection, calls in ((first, 102), (second, 50)):
            for _ in range(calls):
                connection.begin(ATTEND_STREAM)
            connection.flush()
        wait_until(lambda: metric(server, "attention_open_calls") == 152, "they are counted")

        def refuses_one_more():
            second.begin(ATTEND_STREAM)
            second.flush()
            found = statuses(second)
            assert set(found) <= {StatusCode.RESOURCE_EXHAUSTED.value[0]}
            return found

        # From 153 on, three quarters, and before connections are closed.
        wait_until(refuses_one_more, "one is refused")
        first.http.end_stream(1)
        first.flush()
        while not any(isinstance(e, h2.events.StreamEnded) for e in first.receive()):
            pass
    assert "closed" not in server.log()


def test_calls_within_the_limits_stay_open(start):
    server = start_small(start)
    with connect(server) as caller:
        leave_open(caller, WATCH, 200, acknowledged=True, message=True)
        for _ in range(20):
            assert server.call(SMALL) == StatusCode.OK
        assert not is_closed(caller)
    assert "closed" not in server.log()
