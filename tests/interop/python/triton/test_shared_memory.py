"""Tensors in POSIX shared memory, by tritonclient's own helpers."""

import os

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.utils.shared_memory as shm
from numpy.testing import assert_allclose
from tensors import to_inputs, to_outputs
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

SDPA = "scaled_dot_product_attention"


@pytest.fixture
def region(client, request):
    """Creates and registers a region of so many bytes; all are gone at the end."""
    handles = []

    def create(name, byte_size, register=True):
        key = f"attention_{os.getpid()}_{name}"
        handle = shm.create_shared_memory_region(name, key, byte_size, create_only=True)
        handles.append(handle)
        if register:
            client.register_system_shared_memory(name, key, byte_size)
        return handle

    yield create
    client.unregister_system_shared_memory()
    for handle in handles:
        shm.destroy_shared_memory_region(handle)


def in_region(name, region, array, offset):
    tensor = triton.InferInput(
        name, list(array.shape), np_to_triton_dtype(array.dtype)
    )
    tensor.set_shared_memory(region, array.nbytes, offset)
    return tensor


def put_inputs(handle, region, tensors):
    """All tensors one after the other in one region."""
    shm.set_shared_memory_region(handle, list(tensors.values()))
    inputs, offset = [], 0
    for name, array in tensors.items():
        inputs.append(in_region(name, region, array, offset))
        offset += array.nbytes
    return inputs


def size_of(tensors):
    return sum(array.nbytes for array in tensors.values())


def test_inputs_and_outputs(client, problem, region):
    source = region("source", size_of(problem.tensors))
    output, weights, _ = problem.expected()
    target = region("target", 4 * (output.size + weights.size))
    outputs = to_outputs("output", "weights")
    outputs[0].set_shared_memory("target", 4 * output.size)
    outputs[1].set_shared_memory("target", 4 * weights.size, 4 * output.size)
    result = client.infer(
        SDPA, put_inputs(source, "source", problem.tensors), outputs=outputs
    )
    # One entry for each output, with nothing in it.
    assert list(result.get_response().raw_output_contents) == [b"", b""]
    read = shm.get_contents_as_numpy(target, np.float32, output.shape)
    assert_allclose(read, output, atol=1e-5)
    read = shm.get_contents_as_numpy(
        target, np.float32, weights.shape, offset=4 * output.size
    )
    assert_allclose(read, weights, atol=1e-6)


def test_beside_inputs_in_the_message(client, problem, region):
    source = region("source", problem.key.nbytes)
    shm.set_shared_memory_region(source, [problem.key])
    masks = {"valid_lens": np.array([7, 4], np.int32)}
    sent = to_inputs({"query": problem.query, "value": problem.value, **masks})
    sent.insert(1, in_region("key", "source", problem.key, 0))
    result = client.infer(SDPA, sent, outputs=to_outputs("lse", "output"))
    output, _, lse = problem.expected(masks=masks)
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)
    assert_allclose(result.as_numpy("lse"), lse, atol=1e-5)


def test_an_output_between_others(client, problem, region):
    output, weights, lse = problem.expected()
    target = region("target", 4 * weights.size)
    outputs = to_outputs("output", "weights", "lse")
    outputs[1].set_shared_memory("target", 4 * weights.size)
    result = client.infer(SDPA, to_inputs(problem.tensors), outputs=outputs)
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)
    assert_allclose(result.as_numpy("lse"), lse, atol=1e-5)
    read = shm.get_contents_as_numpy(target, np.float32, weights.shape)
    assert_allclose(read, weights, atol=1e-6)


def test_status_lists_what_is_registered(client, region):
    region("a", 100)
    region("b", 200)
    regions = client.get_system_shared_memory_status().regions
    assert {name: r.byte_size for name, r in regions.items()} == {"a": 100, "b": 200}
    client.unregister_system_shared_memory("a")
    assert list(client.get_system_shared_memory_status().regions) == ["b"]
    client.unregister_system_shared_memory("never registered")
    client.unregister_system_shared_memory()
    assert not client.get_system_shared_memory_status().regions


def status_of(call, *arguments, **options):
    with pytest.raises(InferenceServerException) as raised:
        call(*arguments, **options)
    return raised.value.status().removeprefix("StatusCode.")


def test_a_name_that_is_taken(client, region):
    region("a", 100)
    register = client.register_system_shared_memory
    assert status_of(register, "a", f"attention_{os.getpid()}_a", 100) == "ALREADY_EXISTS"


@pytest.mark.parametrize(
    "offset, byte_size",
    [(0, 4097), (4096, 1), (1, 4096), (2**63, 1), (2**64 - 1, 2), (0, 2**64 - 1)],
)
def test_bytes_that_the_object_does_not_have(client, region, offset, byte_size):
    region("whole", 4096, register=False)
    register = client.register_system_shared_memory
    key = f"attention_{os.getpid()}_whole"
    assert (
        status_of(register, "part", key, byte_size, offset=offset) == "INVALID_ARGUMENT"
    )


@pytest.mark.parametrize(
    "key, code",
    [
        ("/attention_nobodys", "NOT_FOUND"),
        ("../../etc/passwd", "INVALID_ARGUMENT"),
        ("a/b", "INVALID_ARGUMENT"),
        ("/triton_python_backend_shm_region_1", "INVALID_ARGUMENT"),
        ("", "INVALID_ARGUMENT"),
    ],
)
def test_keys_that_are_refused(client, key, code):
    assert status_of(client.register_system_shared_memory, "r", key, 1) == code


def test_an_unknown_region(client, problem):
    inputs = to_inputs(problem.tensors)
    inputs[0].set_shared_memory("nobodys", problem.query.nbytes)
    assert status_of(client.infer, SDPA, inputs) == "NOT_FOUND"
    assert status_of(client.get_system_shared_memory_status, "nobodys") == "NOT_FOUND"


@pytest.mark.parametrize(
    "byte_size, offset", [(10**9, 0), (4, 10**9), (4, 2**63 - 1), (2**63 - 1, 4)]
)
def test_bytes_that_the_region_does_not_have(client, problem, region, byte_size, offset):
    region("small", problem.query.nbytes)
    inputs = to_inputs(problem.tensors)
    inputs[0].set_shared_memory("small", byte_size, offset)
    assert status_of(client.infer, SDPA, inputs) == "INVALID_ARGUMENT"


def test_an_output_that_its_place_is_too_small_for(client, problem, region):
    region("small", 16)
    outputs = to_outputs("output")
    outputs[0].set_shared_memory("small", 16)
    with pytest.raises(InferenceServerException, match="output"):
        client.infer(SDPA, to_inputs(problem.tensors), outputs=outputs)


@pytest.mark.parametrize("length", [0, 4096])
def test_a_region_that_its_owner_truncates(client, server, problem, region, length):
    large = np.zeros((1, 1, 8192, 8), np.float32)
    tensors = {"query": problem.query[:1, :1], "key": large, "value": large}
    source = region("source", size_of(tensors))
    inputs = put_inputs(source, "source", tensors)
    os.truncate(f"/dev/shm/attention_{os.getpid()}_source", length)
    with pytest.raises(InferenceServerException, match="'source'.*truncated"):
        client.infer(SDPA, inputs)
    assert server.is_running()
    result = client.infer(SDPA, to_inputs(problem.tensors))
    output, _, _ = problem.expected()
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)


def test_an_outputs_region_that_its_owner_truncates(client, server, problem, region):
    output, _, _ = problem.expected()
    region("target", 4 * output.size)
    outputs = to_outputs("output")
    outputs[0].set_shared_memory("target", 4 * output.size)
    os.truncate(f"/dev/shm/attention_{os.getpid()}_target", 0)
    with pytest.raises(InferenceServerException, match="'target'.*truncated"):
        client.infer(SDPA, to_inputs(problem.tensors), outputs=outputs)
    assert server.is_running()


def test_a_truncated_region_registered_anew_works(client, problem, region):
    source = region("source", problem.query.nbytes)
    path = f"/dev/shm/attention_{os.getpid()}_source"
    inputs = to_inputs(problem.tensors)
    inputs[0].set_shared_memory("source", problem.query.nbytes)
    os.truncate(path, 0)
    status_of(client.infer, SDPA, inputs)
    os.truncate(path, problem.query.nbytes)
    shm.set_shared_memory_region(source, [problem.query])
    # The server's own mapping is gone until it is told to make another.
    assert status_of(client.infer, SDPA, inputs) == "FAILED_PRECONDITION"
    client.unregister_system_shared_memory("source")
    key = f"attention_{os.getpid()}_source"
    client.register_system_shared_memory("source", key, problem.query.nbytes)
    output, _, _ = problem.expected()
    result = client.infer(SDPA, inputs)
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)


def test_is_off_by_default(plain_client, problem):
    register = plain_client.register_system_shared_memory
    assert status_of(register, "a", "key", 1) == "UNAVAILABLE"
    inputs = to_inputs(problem.tensors)
    inputs[0].set_shared_memory("a", problem.query.nbytes)
    assert status_of(plain_client.infer, SDPA, inputs) == "UNAVAILABLE"
    plain_client.unregister_system_shared_memory()


def test_cuda_shared_memory_where_there_is_no_gpu(client):
    assert status_of(client.get_cuda_shared_memory_status) == "UNIMPLEMENTED"
    assert (
        status_of(client.register_cuda_shared_memory, "c", b"\0" * 64, 0, 1)
        == "UNIMPLEMENTED"
    )
    client.unregister_cuda_shared_memory()  # which tools call blindly
