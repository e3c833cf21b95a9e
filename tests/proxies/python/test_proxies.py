"""What each proxy of deploy/proxy is there for."""

import re
import time

import grpc
import oracle
import pytest
from attackers import Connections, unfinished_header
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
    print(f"{dict(load.codes)}, the slowest {load.slowest:.2f} s")
    assert set(load.codes) == {"OK"}


@pytest.mark.parametrize("connections", [2, 4])
def test_unfinished_headers_end_their_connections_alone(proxy, servers, connections):
    before = sum(map(processor_seconds, servers))
    with Load(proxy.address) as load:
        attack = Connections(
            unfinished_header, proxy.address, connections, most_bytes=64 << 20, seconds=60
        )
        with attack:
            attack.wait()
        load.wait_for(load.codes.total() + 100)
    spent = sum(map(processor_seconds, servers)) - before
    print(
        f"closed after {attack.bytes} bytes; {load.codes.total()} calls meanwhile, "
        f"the slowest {load.slowest:.2f} s; servers' processor time {spent:.2f} s"
    )
    assert all(attack.closed)
    assert set(load.codes) == {"OK"}
