"""What each proxy of deploy/proxy is there for."""

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
from attention.v1 import attention_pb2_grpc as rpc
from callers import DEADLINE, Load, check, open_channel, to_request
from inference import grpc_service_pb2 as oip
from inference import grpc_service_pb2_grpc as oip_rpc


def attend(address, problem, credentials=None):
    with open_channel(address, credentials) as channel:
        return rpc.AttentionServiceStub(channel).Attend(
            to_request(problem), timeout=DEADLINE
        )


def computed(server):
    """Requests that a server has computed since its start."""
    with grpc.insecure_channel(server.address) as channel:
        reply = oip_rpc.GRPCInferenceServiceStub(channel).ModelStatistics(
            oip.ModelStatisticsRequest(), timeout=DEADLINE, wait_for_ready=True
        )
    return sum(model.execution_count for model in reply.model_stats)


def wait_until_used(server, calls):
    end = time.monotonic() + 60
    while computed(server) < calls:
        assert time.monotonic() < end, "the proxy leaves a server alone that serves"
        time.sleep(0.05)


def processor_seconds(server):
    with open(f"/proc/{server.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


@pytest.mark.parametrize("queries", [5, 2000])
def test_calls_are_answered(proxy, queries):
    # 2000 queries and keys: 2.3 MiB of request, more than a proxy's buffers.
    problem = oracle.Problem(queries=queries, keys=queries)
    check(problem, attend(proxy.address, problem))


def test_streams_are_answered(proxy):
    problem = oracle.Problem()
    requests = iter([to_request(problem)] * 50)
    with open_channel(proxy.address) as channel:
        replies = list(
            rpc.AttentionServiceStub(channel).AttendStream(requests, timeout=DEADLINE)
        )
    assert len(replies) == 50
    for reply in replies:
        check(problem, reply.result)


def test_holders_of_a_certificate_are_answered(proxy, certificates):
    certificate = (certificates / "tls.crt").read_bytes()
    credentials = grpc.ssl_channel_credentials(
        certificate, (certificates / "tls.key").read_bytes(), certificate
    )
    problem = oracle.Problem()
    address = f"127.0.0.1:{proxy.tls_port}"
    check(problem, attend(address, problem, credentials))


def test_others_are_not(proxy, certificates):
    credentials = grpc.ssl_channel_credentials((certificates / "tls.crt").read_bytes())
    with pytest.raises(grpc.RpcError) as raised:
        attend(f"127.0.0.1:{proxy.tls_port}", oracle.Problem(), credentials)
    assert raised.value.code() != grpc.StatusCode.DEADLINE_EXCEEDED


def test_rolling_restart_under_load_loses_no_call(proxy, servers):
    with Load(proxy.address) as load:
        load.wait_for(1000)
        for server in servers:
            assert server.stop() == 0
            server.start(server.port)
            wait_until_used(server, 100)
        load.wait_for(10000)
    print(load)
    assert set(load.codes) == {"OK"}


# Which attacks end an attacker's connections. HAProxy 2.6 takes resets without end, and
# serves the others meanwhile.
@pytest.mark.parametrize(
    ("frames", "threads"),
    [(unfinished_header, 2), (unfinished_header, 4), (repeated_header, 4)],
)
def test_attacks_by_headers_end_their_connections_alone(proxy, servers, frames, threads):
    expect_others_to_be_served(proxy, servers, frames, threads, closed=threads)


def test_attacks_by_resets_stop_nobody_else(proxy, servers):
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


def test_the_server_alone_is_held_up_and_recovers(servers):
    """What the proxies are for: gRPC 1.51 has no limit to this. A figure, no bound."""
    address = servers[0].address
    with Load(address) as load:
        bounds = {"most_connections": 1, "most_bytes": 1 << 20}
        with Attack(unfinished_header, address, 4, **bounds) as attack:
            attack.wait()
        load.wait_for(load.codes.total() + 10)
    print(f"{attack}; others: {load}")
    check(problem := oracle.Problem(), attend(address, problem))


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
    wait_until_new_callers_are_served(proxy)


def wait_until_new_callers_are_served(proxy):
    end = time.monotonic() + 60
    while True:
        try:
            return attend(proxy.address, oracle.Problem())
        except grpc.RpcError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
