"""Messages that no client library makes, through nothing but generated stubs."""

import grpc
import numpy as np
import oracle
import pytest
from inference import grpc_service_pb2 as pb
from numpy.testing import assert_allclose

SDPA = "scaled_dot_product_attention"
Input = pb.ModelInferRequest.InferInputTensor
CONTENTS = {
    "FP32": "fp32_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
}
NAMES = {"float32": "FP32", "int32": "INT32", "int64": "INT64"} | {
    "bool": "BOOL",
    "uint8": "UINT8",
}


def typed(name, array):
    datatype = NAMES[array.dtype.name]
    tensor = Input(name=name, datatype=datatype, shape=array.shape)
    getattr(tensor.contents, CONTENTS[datatype]).extend(array.flatten().tolist())
    return tensor


def declared(name, array):
    return Input(name=name, datatype=NAMES[array.dtype.name], shape=array.shape)


def raw_request(tensors, model=SDPA):
    return pb.ModelInferRequest(
        model_name=model,
        inputs=[declared(name, array) for name, array in tensors.items()],
        raw_input_contents=[array.tobytes() for array in tensors.values()],
    )


def typed_request(tensors, model=SDPA):
    return pb.ModelInferRequest(
        model_name=model, inputs=[typed(*item) for item in tensors.items()]
    )


def array_of(reply, index=0):
    output = reply.outputs[index]
    assert output.datatype == "FP32"
    raw = np.frombuffer(reply.raw_output_contents[index], np.float32)
    return raw.reshape(output.shape)


def refusal(stub, request):
    with pytest.raises(grpc.RpcError) as raised:
        stub.ModelInfer(request)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    return raised.value.details()


@pytest.mark.parametrize("model", oracle.MODELS)
def test_typed_contents_of_every_scoring_function(stub, problem, model):
    names, score = oracle.MODELS[model]
    parameters = {name: getattr(problem, name) for name in names}
    reply = stub.ModelInfer(typed_request({**problem.tensors, **parameters}, model))
    output, _, _ = problem.expected(score, *parameters.values())
    assert_allclose(array_of(reply), output, atol=1e-5)
    assert not reply.outputs[0].HasField("contents")
    assert len(reply.raw_output_contents) == 1


@pytest.mark.parametrize("lengths", [np.int32, np.int64])
@pytest.mark.parametrize("mask", [np.bool_, np.uint8])
def test_typed_masks(stub, problem, lengths, mask):
    attend_mask = np.ones((5, 7), mask)
    attend_mask[2:, 1] = 0
    masks = {"valid_lens": np.array([6, 2], lengths), "attend_mask": attend_mask}
    reply = stub.ModelInfer(typed_request({**problem.tensors, **masks}))
    output, _, _ = problem.expected(masks=masks)
    assert_allclose(array_of(reply), output, atol=1e-5)


def test_contents_packed_or_not_are_one_message(stub, problem):
    request = typed_request(problem.tensors)
    # An element of key in a field of its own, unpacked: tag 6, wire type 5.
    contents = request.inputs[1].contents
    last = np.float32(contents.fp32_contents.pop())
    text = request.inputs[1].SerializeToString()
    extra = b"\x35" + last.tobytes()
    text += b"\x2a" + bytes([len(extra)]) + extra  # contents again: merged
    request.inputs[1].ParseFromString(text)
    head = typed_request({"query": problem.query}).SerializeToString()
    key = b"\x2a" + varint(len(text)) + text
    value = pb.ModelInferRequest(inputs=[typed("value", problem.value)])
    message = head + key + value.SerializeToString()
    reply = pb.ModelInferResponse.FromString(call_bytes(stub, message))
    output, _, _ = problem.expected()
    assert_allclose(array_of(reply), output, atol=1e-5)


def varint(number):
    text = b""
    while number >= 0x80:
        text += bytes([number & 0x7F | 0x80])
        number >>= 7
    return text + bytes([number])


def call_bytes(stub, message):
    """ModelInfer with bytes as they are."""
    return stub.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(
        message
    )


def test_contents_before_the_metadata(stub, problem):
    parts = raw_request(problem.tensors)
    contents = pb.ModelInferRequest(raw_input_contents=parts.raw_input_contents)
    parts.ClearField("raw_input_contents")
    message = contents.SerializeToString() + parts.SerializeToString()
    reply = pb.ModelInferResponse.FromString(call_bytes(stub, message))
    output, _, _ = problem.expected()
    assert_allclose(array_of(reply), output, atol=1e-5)


def test_contents_in_both_places(stub, problem):
    request = raw_request(problem.tensors)
    request.inputs[2].CopyFrom(typed("value", problem.value))
    del request.raw_input_contents[2]
    assert "value: has contents beside raw_input_contents" in refusal(stub, request)


def test_too_few_raw_contents(stub, problem):
    request = raw_request(problem.tensors)
    del request.raw_input_contents[2]
    assert "unable to find data for input tensor" in refusal(stub, request)


def test_too_many_raw_contents(stub, problem):
    request = raw_request(problem.tensors)
    request.raw_input_contents.append(b"")
    assert "raw_input_contents: 4 entries" in refusal(stub, request)


def test_too_few_typed_elements(stub, problem):
    request = typed_request(problem.tensors)
    request.inputs[1].contents.fp32_contents.pop()
    assert refusal(stub, request).startswith("key: ")


def test_typed_contents_of_another_type(stub, problem):
    request = typed_request(problem.tensors)
    elements = list(request.inputs[1].contents.fp32_contents)
    request.inputs[1].ClearField("contents")
    request.inputs[1].contents.fp64_contents.extend(elements)
    assert refusal(stub, request).startswith("key: ")


def test_typed_contents_that_have_no_field(stub, problem):
    request = typed_request(problem.tensors)
    request.inputs[0].datatype = "FP16"
    assert refusal(stub, request).startswith("query: ")


@pytest.mark.parametrize(
    "shape", [[-1, 3, 5, 8], [2**62, 2**62], [2**63 - 1], [2, 3, 5, 9]]
)
def test_shapes_that_the_bytes_do_not_have(stub, problem, shape):
    request = raw_request(problem.tensors)
    request.inputs[0].shape[:] = shape
    assert refusal(stub, request).startswith("query: ")


@pytest.mark.parametrize(
    "parameter",
    [
        pb.InferParameter(double_param=0.5),
        pb.InferParameter(string_param="5e-1"),
    ],
)
def test_a_number_as(stub, problem, parameter):
    request = raw_request(problem.tensors)
    request.parameters["scale"].CopyFrom(parameter)
    output, _, _ = problem.expected(scale=0.5)
    assert_allclose(array_of(stub.ModelInfer(request)), output, atol=1e-5)


@pytest.mark.parametrize(
    "parameter",
    [
        pb.InferParameter(int64_param=2),
        pb.InferParameter(uint64_param=2),
        pb.InferParameter(double_param=2.0),
        pb.InferParameter(string_param="2"),
    ],
)
def test_a_whole_number_as(stub, problem, parameter):
    request = raw_request(problem.tensors)
    request.parameters["window_left"].CopyFrom(parameter)
    query, key = np.arange(5)[:, None], np.arange(7)
    output, _, _ = problem.expected(masks={"attend_mask": key >= query - 2})
    assert_allclose(array_of(stub.ModelInfer(request)), output, atol=1e-5)


@pytest.mark.parametrize(
    "key",
    ["shared_memory_byte_size", "shared_memory_offset"],
)
def test_a_size_without_its_region(stub, problem, key):
    request = raw_request(problem.tensors)
    request.inputs[0].parameters[key].int64_param = 4
    assert "shared_memory_region" in refusal(stub, request)


def test_parameters_that_the_kserve_sdk_sends(stub, problem):
    request = raw_request(problem.tensors)
    request.inputs[0].parameters["binary_data_size"].int64_param = 4
    request.parameters["headers"].string_param = "x"
    output, _, _ = problem.expected()
    assert_allclose(array_of(stub.ModelInfer(request)), output, atol=1e-5)


def test_bytes_that_are_no_message(stub):
    for message in (b"\xff", b"\x0a\xff", raw_request({}).SerializeToString() + b"\x3a"):
        with pytest.raises(grpc.RpcError) as raised:
            call_bytes(stub, message)
        assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
