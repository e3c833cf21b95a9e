"""Calls through each proxy of deploy/proxy, and a rolling restart behind it."""

import re
import socket
import time
import urllib.request

import grpc
import oracle
import pytest
from attention.v1 import attention_pb2_grpc as rpc
from callers import (
    DEADLINE,
    Load,
    attend,
    check,
    open_channel,
    to_inference,
    to_request,
)
from inference import grpc_service_pb2 as oip
from inference import grpc_service_pb2_grpc as oip_rpc
from running_proxy import NETWORK


@pytest.mark.parametrize("keys", [7, 8000])
def test_calls_are_answered(proxy, keys):
    # 8000 keys: 2.9 MiB of request, more than a proxy's buffers.
    problem = oracle.Problem(keys=keys)
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


@pytest.mark.parametrize("host", ["127.0.0.1", NETWORK])
def test_holders_of_a_certificate_are_answered(proxy, certificates, host):
    certificate = (certificates / "tls.crt").read_bytes()
    credentials = grpc.ssl_channel_credentials(
        certificate, (certificates / "tls.key").read_bytes(), certificate
    )
    problem = oracle.Problem()
    check(problem, attend(f"{host}:{proxy.tls_port}", problem, credentials))


def test_plain_text_is_not_for_a_network(proxy):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((NETWORK, proxy.port))


def test_others_are_not(proxy, certificates):
    credentials = grpc.ssl_channel_credentials((certificates / "tls.crt").read_bytes())
    with pytest.raises(grpc.RpcError) as raised:
        attend(f"127.0.0.1:{proxy.tls_port}", oracle.Problem(), credentials)
    assert raised.value.code() != grpc.StatusCode.DEADLINE_EXCEEDED


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


def metric(server, pattern):
    """The sum of the series that match."""
    with urllib.request.urlopen(f"http://{server.http_address}/metrics") as page:
        found = re.findall(rf"^{pattern} (\d+)", page.read().decode(), re.M)
    return sum(map(int, found))


def requests_in_flight(server):
    return metric(server, "attention_requests_in_flight")


def test_what_a_server_has_begun_is_not_sent_again(proxy, servers):
    # It computes for seconds.
    problem = oracle.Problem(batch=1, heads=2, queries=32768, keys=32768, width=64)
    with grpc.insecure_channel(proxy.address, [("grpc.enable_retries", 0)]) as channel:
        attend = rpc.AttentionServiceStub(channel).Attend
        call = attend.future(to_request(problem), timeout=DEADLINE)
        while not (begun := [one for one in servers if requests_in_flight(one)]):
            assert not call.done()
        (server,) = begun
        server.kill()
        try:
            code = call.exception().code()
            assert sum(requests_in_flight(one) for one in servers if one != server) == 0
        finally:
            server.start(server.port)
    assert code == grpc.StatusCode.UNAVAILABLE


def test_what_a_server_has_answered_is_not_sent_again(proxy, servers):
    # UNAVAILABLE, which a server may say that has begun: shared memory is off there.
    request = to_inference(oracle.Problem())
    request.ClearField("raw_input_contents")
    for tensor in request.inputs:
        tensor.parameters["shared_memory_region"].string_param = "none"
        tensor.parameters["shared_memory_byte_size"].int64_param = 1

    def answered():
        series = r'attention_requests_total\{.*code="Unavailable".*\}'
        return sum(metric(server, series) for server in servers)

    before = answered()
    with grpc.insecure_channel(proxy.address, [("grpc.enable_retries", 0)]) as channel:
        infer = oip_rpc.GRPCInferenceServiceStub(channel).ModelInfer
        with pytest.raises(grpc.RpcError) as raised:
            infer(request, timeout=DEADLINE)
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    assert answered() == before + 1


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
