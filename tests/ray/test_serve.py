"""attention_client.serve: a real Serve, called by clients that know nothing of it."""

import contextlib
import os
import queue
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
import ray
import tritonclient.grpc as triton
import yaml
from ray import serve
from ray._common.utils import import_attr
from ray.serve.schema import ServeDeploySchema
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException
from waiting import wait_until

from attention_client import (
    Client,
    InvalidArgumentError,
    LocalServer,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
)
from attention_client.errors import from_rpc_error
from attention_client.serve import SERVICES, Attention, Replica

SDPA = "scaled_dot_product_attention"
ROOT = Path(__file__).resolve().parents[2]
NODE = {"num_cpus": 0, "resources": {"replica": 3}, "object_store_memory": 80 << 20}
ONE_REPLICA = {"min_replicas": 1, "max_replicas": 1}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def target(ray_cluster):
    """Where Serve's gRPC proxy listens. Replicas have a node that no other takes."""
    node = ray_cluster.add_node(**NODE)
    port = free_port()
    serve.start(
        proxy_location="HeadOnly",  # else nodes on one host want the same port
        http_options={"host": "127.0.0.1", "port": free_port()},
        grpc_options={"port": port, "grpc_servicer_functions": [SERVICES]},
    )
    quick = Attention.options(
        ray_actor_options={"num_cpus": 0, "resources": {"replica": 1}},
        health_check_period_s=0.5,
        autoscaling_config=ONE_REPLICA,
    )
    try:
        serve.run(quick.bind({"worker_threads": 1}))
        yield f"127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray_cluster.remove_node(node)


@pytest.fixture
def client(target):
    with triton.InferenceServerClient(target) as made:
        yield made


def inputs(**tensors):
    made = []
    for name, array in tensors.items():
        made.append(triton.InferInput(name, array.shape, "FP32"))
        made[-1].set_data_from_numpy(array)
    return made


@pytest.fixture
def problem(normal):
    return {"query": normal(4, 8), "key": normal(6, 8), "value": normal(6, 3)}


def test_tritonclient_finds_a_server_and_its_models(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(SDPA)
    assert client.get_server_metadata().name == "attention-server"
    names = [one.name for one in client.get_model_metadata(SDPA).inputs]
    assert names == ["query", "key", "value"]
    assert client.get_model_config(SDPA).config.name == SDPA
    assert SDPA in [one.name for one in client.get_model_repository_index().models]


def test_tritonclient_gets_the_servers_answers(client, one_server, problem):
    wanted = [triton.InferRequestedOutput(name) for name in ("output", "weights")]
    options = {"causal": "bottom_right", "softcap": 2.0}
    answer = client.infer(SDPA, inputs(**problem), outputs=wanted, parameters=options)
    expected = one_server.attend(**problem, weights=True, **options)
    np.testing.assert_array_equal(answer.as_numpy("output"), expected.output)
    np.testing.assert_array_equal(answer.as_numpy("weights"), expected.weights)


def test_tritonclient_streams(client, one_server, problem):
    answers = queue.SimpleQueue()
    client.start_stream(lambda result, error: answers.put(error or result))
    for n in range(3):
        client.async_stream_infer(SDPA, inputs(**problem), request_id=str(n))
    got = [answers.get(timeout=60) for _ in range(3)]
    client.stop_stream()
    expected = one_server.attend(**problem).output
    assert {one.get_response().id for one in got} == {"0", "1", "2"}
    for one in got:
        np.testing.assert_array_equal(one.as_numpy("output"), expected)


def test_mistakes_are_told_as_the_server_tells_them(
    target, client, one_server, problem
):
    problem["key"] = problem["key"][:, :7]
    with pytest.raises(InvalidArgumentError) as of_server:
        one_server.attend(**problem)
    with pytest.raises(InferenceServerException) as of_triton:
        client.infer(SDPA, inputs(**problem))
    assert of_triton.value.status() == str(grpc.StatusCode.INVALID_ARGUMENT)
    assert of_triton.value.message() == of_server.value.message
    with Client(target) as ours, pytest.raises(InvalidArgumentError) as of_ours:
        ours.attend(**problem)
    assert of_ours.value.field == "key"


@contextlib.contextmanager
def application(autoscaling=ONE_REPLICA, **flags):
    """One beside the other, whose replicas have these flags: metadata to it."""
    # By metadata Serve finds an application, where there are several.
    metadata = {"application": "beside"}
    beside = Attention.options(
        ray_actor_options={"num_cpus": 0, "resources": {"replica": 1}},
        autoscaling_config=autoscaling,
    )
    name = metadata["application"]
    wanted = {"worker_threads": 1, **flags}
    serve.run(beside.bind(wanted), name=name, route_prefix=f"/{name}")
    try:
        yield metadata
    finally:
        serve.delete(name)


def test_a_caller_is_told_when_to_try_again(target, normal):
    rows = normal(1000, 64)
    with (
        application(max_bytes_per_second=1000) as metadata,
        Client(target, shared_memory=False) as ours,
    ):
        ours.attend(rows, rows, rows, metadata=metadata)  # minutes' worth
        with pytest.raises(ResourceExhaustedError) as caught:
            ours.attend(rows, rows, rows, metadata=metadata)
    assert "bytes" in caught.value.message
    assert caught.value.retry_after > 1


def test_a_stream_that_ends_with_an_error_tells_when_to_try_again(target, normal):
    request = service_pb2.ModelInferRequest(model_name=SDPA)
    for name in ("query", "key", "value"):
        request.inputs.add(name=name, datatype="FP32", shape=(1000, 64))
        request.raw_input_contents.append(normal(1000, 64).tobytes())
    data, replies = request.SerializeToString(), []
    with (
        application(max_bytes_per_second=1000) as metadata,
        grpc.insecure_channel(target) as channel,
    ):
        stream = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer"
        )
        beside = [*metadata.items(), ("triton_grpc_error", "true")]
        with pytest.raises(grpc.RpcError) as caught:
            for reply in stream(iter([data] * 2), metadata=beside):
                replies.append(reply)
    error = from_rpc_error(caught.value, target)
    assert isinstance(error, ResourceExhaustedError)
    assert error.retry_after > 1
    assert all(replies)  # none is there for the sake of what comes with the error


def test_our_own_client_needs_no_change(target, one_server, problem):
    with Client(target) as ours:
        assert ours.health() == "SERVING"
        assert ours.info().version == one_server.info().version
        answer = ours.attend(**problem, lse=True)
        streamed = list(ours.attend_many([problem] * 3))
    expected = one_server.attend(**problem, lse=True)
    np.testing.assert_array_equal(answer.output, expected.output)
    np.testing.assert_array_equal(answer.lse, expected.lse)
    assert len(streamed) == 3


def test_large_messages_pass(target, normal):
    query = normal(1, 64)
    rows = normal(
        50_000, 64
    )  # 12.8 MB each, of which gRPC lets 4 MiB through by itself
    with Client(target, shared_memory=False) as ours:
        answer = ours.attend(query, rows, rows)
    assert answer.output.shape == (1, 64)


def test_what_one_server_keeps_is_not_offered(target):
    with Client(target) as ours, pytest.raises(UnimplementedError):
        ours.sequence(heads=1, width=4)


def test_replicas_are_added_as_calls_queue_up(target, normal):
    rows = normal(4, 2048, 64)
    quick = {
        "min_replicas": 1,
        "max_replicas": 2,
        "target_ongoing_requests": 1,
        "upscale_delay_s": 0,
        "look_back_period_s": 1,
        "metrics_interval_s": 0.2,
    }
    with (
        application(quick) as metadata,
        Client(target) as ours,
        ThreadPoolExecutor(6) as threads,
    ):

        def replicas():
            found = serve.status().applications[metadata["application"]]
            return found.deployments["Attention"].replica_states.get("RUNNING", 0)

        assert replicas() == 1
        is_ending = []

        def call():
            while not is_ending:
                ours.attend(rows, rows, rows, metadata=metadata)

        calls = [threads.submit(call) for _ in range(6)]
        try:
            wait_until(lambda: replicas() == 2)
        finally:
            is_ending.append(True)
        for one in calls:
            one.result()


def servers():
    """Processes of servers that replicas have started."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.NoSuchProcess):
            command = process.info["cmdline"] or [""]
            of_replica = process.parent() and "Replica" in process.parent().name()
            if os.path.basename(command[0]) == "attention-server" and of_replica:
                found.append(process.pid)
    return found


def test_a_replica_whose_server_dies_is_replaced(client, problem):
    before = servers()
    assert before
    for pid in before:
        os.kill(pid, signal.SIGKILL)

    def is_back():
        with contextlib.suppress(InferenceServerException):
            client.infer(SDPA, inputs(**problem))
            return True
        return False

    wait_until(is_back)
    assert not set(before) & set(servers())


@pytest.mark.usefixtures("ray_cluster")
def test_a_replica_whose_server_does_not_serve_is_not_healthy():
    def drain(of):
        os.kill(of._server.pid, signal.SIGTERM)

    flags = {"worker_threads": 1, "drain_delay": 60}
    replica = ray.remote(Replica).options(num_cpus=0).remote(flags)
    try:
        ray.get(replica.check_health.remote(), timeout=60)
        ray.get(replica.__ray_call__.remote(drain), timeout=60)

        def is_healthy():
            with contextlib.suppress(UnavailableError):
                ray.get(replica.check_health.remote(), timeout=60)
                return True
            return False

        wait_until(lambda: not is_healthy())
        with pytest.raises(UnavailableError, match="says NOT_SERVING"):
            ray.get(replica.check_health.remote(), timeout=60)
    finally:
        ray.kill(replica)


@pytest.mark.usefixtures("ray_cluster")
def test_a_replicas_server_has_the_replicas_share_of_the_node():
    def words(of):
        return psutil.Process(of._server.pid).cmdline()

    options = {"num_cpus": 0, "memory": 100 << 20}
    replica = ray.remote(Replica).options(**options).remote({"log_level": "error"})
    try:
        command = ray.get(replica.__ray_call__.remote(words), timeout=60)
    finally:
        ray.kill(replica)
    assert "--worker-threads=1" in command
    assert f"--memory-limit={80 << 20}" in command
    assert "--log-level=error" in command


def configurations():
    manifest = ROOT / "deploy" / "kubernetes" / "ray" / "ray-service.yaml"
    page = (ROOT / "docs" / "scaling.md").read_text()
    return [
        yaml.safe_load(manifest.read_text())["spec"]["serveConfigV2"],
        *re.findall(r"```yaml\n(grpc_options.*?)```", page, re.S),
    ]


@pytest.fixture(params=configurations(), ids=["manifest", "page"])
def schema(request):
    return ServeDeploySchema.model_validate(yaml.safe_load(request.param))


def test_the_shown_configurations_are_what_serve_takes(schema):
    assert schema.grpc_options.grpc_servicer_functions == [SERVICES]
    (application,) = schema.applications
    assert [one.name for one in application.deployments] == [Attention.name]
    made = import_attr(application.import_path)(application.args)
    assert made is not None


def test_the_shown_flags_start_a_server(schema):
    (application,) = schema.applications
    with LocalServer(**application.args) as server, Client(server.target) as ours:
        assert ours.health() == "SERVING"
