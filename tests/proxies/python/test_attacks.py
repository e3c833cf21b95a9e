"""Attacks on each proxy of deploy/proxy, and on a server without one."""

import time

import grpc
import oracle
import pytest
from attackers import (
    Attack,
    IdleConnections,
    end_of_half_a_call,
    repeated_header,
    reset_calls,
    unfinished_header,
)
from callers import Load, attend
from running_server import RunningServer


def processor_seconds(server):
    with open(f"/proc/{server.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


@pytest.mark.parametrize(
    ("frames", "threads"),
    [(unfinished_header, 2), (unfinished_header, 4), (repeated_header, 4)],
)
def test_attacks_by_headers_end_their_connections_alone(
    proxy, servers, frames, threads
):
    expect_others_to_be_served(proxy, servers, frames, threads, closed=threads)


def test_attacks_by_resets_stop_nobody_else(proxy, servers):
    # HAProxy 2.6 takes resets without end, and serves the others meanwhile.
    closed = 0 if proxy.name == "haproxy" else 4
    expect_others_to_be_served(proxy, servers, reset_calls, 4, closed)


def expect_others_to_be_served(proxy, servers, frames, threads, closed):
    before = sum(map(processor_seconds, servers))
    with Load(proxy.address) as load, Attack(frames, proxy.address, threads) as attack:
        load.wait_for(200)
        attack.wait_until_closed(closed)
    spent = sum(map(processor_seconds, servers)) - before
    print(f"{attack}; others: {load}; servers' processor time {spent:.2f} s")
    assert set(load.codes) == {"OK"}


def test_the_server_alone_is_held_up_and_recovers(tmp_path):
    """What the proxies are for: gRPC 1.51 has no limit to this.

    It works off what it has read, also when the attackers are gone: so few bytes, or
    it takes minutes.
    """
    server = RunningServer(tmp_path / "log")
    with Load(server.address) as load:
        load.wait_for(200)
        before = load.slowest
        with Attack(
            unfinished_header, server.address, 4, most_bytes=256 << 10
        ) as attack:
            held_up = seconds_until_a_new_caller_is_served(server.address, at_most=120)
        load.wait_for(load.codes.total() + 100)
    print(
        f"{attack}; a new caller is served after {held_up:.2f} s; others: {load}, "
        f"{before:.2f} s before the attack"
    )
    assert set(load.codes) == {"OK"}
    assert held_up < 120
    assert server.stop() == 0


def test_half_a_call_is_ended(proxy):
    print(end_of_half_a_call(proxy.address))


# Of one source, which opens 1100.
IDLE_CONNECTIONS_HELD = {"envoy": 999, "haproxy": 100, "nginx": 1100}


def test_idle_connections_do_not_stop_callers(proxy):
    with Load(proxy.address, threads=1) as load:
        load.wait_for(2)
        with IdleConnections(proxy.address, 1100) as idle:
            load.wait_for(load.codes.total() + 100)
            held = idle.held()
            # Envoy's limit is one for all sources: new callers find no room.
            if proxy.name != "envoy":
                attend(proxy.address, oracle.Problem())
    print(f"{held} of 1100 held; others: {load}")
    assert held <= IDLE_CONNECTIONS_HELD[proxy.name]
    assert set(load.codes) == {"OK"}
    assert seconds_until_a_new_caller_is_served(proxy.address, at_most=60) < 60


def seconds_until_a_new_caller_is_served(address, at_most):
    start = time.monotonic()
    while (passed := time.monotonic() - start) < at_most:
        try:
            attend(address, oracle.Problem(), deadline=min(at_most, 10))
            return time.monotonic() - start
        except grpc.RpcError:
            time.sleep(0.1)
    return passed
