"""tritonclient's HTTP client, which speaks JSON with elements in it or behind it."""

import os

import numpy as np
import pytest
import tensors
import tritonclient.http as triton
import tritonclient.utils.shared_memory as shm
from numpy.testing import assert_allclose
from tritonclient.utils import InferenceServerException

SDPA = "scaled_dot_product_attention"


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.http_address) as connected:
        yield connected


@pytest.fixture
def plain_client(plain_server):
    with triton.InferenceServerClient(plain_server.http_address) as connected:
        yield connected


def to_inputs(arrays, binary=True):
    return tensors.to_inputs(arrays, triton, binary_data=binary)


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
def test_elements_in_and_behind_the_json(client, problem, binary_in, binary_out):
    wanted = [
        triton.InferRequestedOutput("output", binary_data=binary_out),
        triton.InferRequestedOutput("lse", binary_data=not binary_out),
    ]
    result = client.infer(
        SDPA, to_inputs(problem.tensors, binary_in), outputs=wanted, request_id="mine"
    )
    output, _, lse = problem.expected()
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)
    assert_allclose(result.as_numpy("lse"), lse, atol=1e-5)
    assert result.get_response()["id"] == "mine"


def test_without_requested_outputs(client, problem):
    output, _, _ = problem.expected()
    result = client.infer(SDPA, to_inputs(problem.tensors), model_version="1")
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)


def test_sixteen_bits(client, problem):
    halves = {k: t.astype(np.float16) for k, t in problem.tensors.items()}
    output, _, _ = problem.expected()
    result = client.infer(SDPA, to_inputs(halves)).as_numpy("output")
    assert result.dtype == np.float16
    assert_allclose(result.astype(np.float64), output, atol=0.01)


def test_parameters_and_masks(client, problem):
    masks = {"valid_lens": np.array([7, 3], np.int32)}
    for binary in (True, False):
        result = client.infer(
            SDPA,
            to_inputs({**problem.tensors, **masks}, binary),
            parameters={"scale": 0.25},
        )
        output, _, _ = problem.expected(masks=masks, scale=0.25)
        assert_allclose(result.as_numpy("output"), output, atol=1e-5)


def test_asynchronous_calls(client, problem):
    output, _, _ = problem.expected()
    calls = [client.async_infer(SDPA, to_inputs(problem.tensors)) for _ in range(8)]
    for call in calls:
        assert_allclose(call.get_result().as_numpy("output"), output, atol=1e-5)


def test_shared_memory(client, problem):
    sizes = {name: array.nbytes for name, array in problem.tensors.items()}
    output, _, _ = problem.expected()
    key = f"attention_http_{os.getpid()}"
    total = sum(sizes.values()) + 4 * output.size
    handle = shm.create_shared_memory_region("all", key, total, create_only=True)
    try:
        shm.set_shared_memory_region(handle, list(problem.tensors.values()))
        client.register_system_shared_memory("all", key, total)
        [status] = client.get_system_shared_memory_status()
        assert (status["name"], status["byte_size"]) == ("all", total)
        inputs, offset = [], 0
        for name, array in problem.tensors.items():
            tensor = triton.InferInput(name, list(array.shape), "FP32")
            tensor.set_shared_memory("all", array.nbytes, offset)
            inputs.append(tensor)
            offset += array.nbytes
        wanted = triton.InferRequestedOutput("output")
        wanted.set_shared_memory("all", 4 * output.size, offset)
        response = client.infer(SDPA, inputs, outputs=[wanted]).get_response()
        assert "data" not in response["outputs"][0]
        result = shm.get_contents_as_numpy(handle, np.float32, output.shape, offset)
        assert_allclose(result, output, atol=1e-5)
        client.unregister_system_shared_memory("all")
        assert client.get_system_shared_memory_status() == []
    finally:
        client.unregister_system_shared_memory()
        shm.destroy_shared_memory_region(handle)


def test_management(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready(SDPA, "1") and not client.is_model_ready("nobody")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata(SDPA)
    names = [tensor["name"] for tensor in metadata["inputs"]]
    assert names == ["query", "key", "value"]
    assert client.get_model_config(SDPA)["name"] == SDPA
    [statistics] = client.get_inference_statistics(SDPA)["model_stats"]
    assert statistics["name"] == SDPA
    states = {m["name"]: m["state"] for m in client.get_model_repository_index()}
    assert states[SDPA] == "READY" and states["broken"] == "UNAVAILABLE"
    assert client.get_log_settings()["log_info"] is True
    assert client.get_trace_settings()["trace_level"] == ["OFF"]


def test_models_are_unloaded_and_loaded(client):
    client.unload_model("trained_bilinear")
    assert not client.is_model_ready("trained_bilinear")
    client.load_model("trained_bilinear")
    assert client.is_model_ready("trained_bilinear")


@pytest.mark.parametrize(
    "call, status",
    [
        (lambda c, inputs: c.infer("nobody", inputs), "404"),
        (lambda c, inputs: c.infer(SDPA, inputs[:1]), "400"),
        (lambda c, inputs: c.load_model("trained_bilinear"), "503"),
        (lambda c, inputs: c.register_system_shared_memory("a", "/a", 4), "503"),
    ],
)
def test_errors_have_their_status(plain_client, problem, call, status):
    with pytest.raises(InferenceServerException) as raised:
        call(plain_client, to_inputs(problem.tensors))
    assert raised.value.status() == status
    assert raised.value.message()


def test_compressed_bodies_are_refused(client, problem):
    with pytest.raises(InferenceServerException) as raised:
        client.infer(
            SDPA, to_inputs(problem.tensors), request_compression_algorithm="gzip"
        )
    assert raised.value.status() == "415"
    assert "Content-Encoding" in raised.value.message()
