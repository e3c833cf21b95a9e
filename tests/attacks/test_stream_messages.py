"""Messages on streams of requests that are refused, and those that follow them."""

import numpy as np
from attacked_server import ATTEND_STREAM, PATIENCE
from attention.v1 import attention_pb2
from grpc import StatusCode
from inference import grpc_service_pb2
from messages import SMALL, field
from sequences import attend_request

MIB = 1 << 20
INFER_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
MODEL = b"scaled_dot_product_attention"
ONE = b"\x00\x00\x80\x3f"


def answers(channel, method, response, *messages):
    stream = channel.stream_stream(method, response_deserializer=response.FromString)
    return list(stream(iter(messages), timeout=PATIENCE))


def attend(channel, *messages):
    response = attention_pb2.AttendStreamResponse
    return answers(channel, ATTEND_STREAM, response, *messages)


def infer(channel, *messages):
    response = grpc_service_pb2.ModelStreamInferResponse
    return answers(channel, INFER_STREAM, response, *messages)


def infer_request():
    request = grpc_service_pb2.ModelInferRequest(model_name=MODEL.decode())
    for name in ("query", "key", "value"):
        request.inputs.add(name=name, datatype="FP32", shape=[1, 1, 1])
        request.raw_input_contents.append(ONE)
    return request.SerializeToString()


def with_parameter(key):
    parameter = field(4, field(1, key) + field(2, b"\x10\x01"))
    return infer_request() + parameter


def million_numbers():
    """Varints of four bytes, each another one."""
    for n in range(1 << 20):
        yield bytes([n & 127 | 128, n >> 7 & 127 | 128, n >> 14 | 128, 1])


def test_a_million_entries_of_sequences_are_refused_without_their_memory(start):
    # 9 bytes each, for a layer of its own; waiting for its turn, each would take 600.
    entries = b"".join(field(1, b"\x10" + number) for number in million_numbers())
    server = start()
    before = server.most_memory()
    with server.channel() as channel:
        replies = attend(channel, field(1, b"many") + field(4, entries), SMALL)
        reply = {reply.id: reply for reply in replies}
        assert reply[""].error.code == StatusCode.INVALID_ARGUMENT.value[0]
        assert "65536 bytes" in reply[""].error.message
        assert reply["attack"].result.output.shape == [2, 4]
    assert server.most_memory() - before < 100 * MIB


def test_a_million_parameters_are_refused_without_their_memory(start):
    # Each the number of a sequence.
    key = field(1, b"sequence_id")
    values = (field(2, b"\x10" + number) for number in million_numbers())
    parameters = b"".join(field(4, key + value) for value in values)
    server = start()
    before = server.most_memory()
    with server.channel() as channel:
        many, small = infer(channel, field(1, MODEL) + parameters, infer_request())
        assert "65536 bytes" in many.error_message
        assert small.infer_response.raw_output_contents == [ONE]
    assert server.most_memory() - before < 150 * MIB


def test_an_error_that_quotes_half_a_character_does_not_end_the_stream(start):
    # What is shown of a name has 64 bytes, which end within one of these.
    name = "a" + 40 * "\u00e9"
    server = start()
    with server.channel() as channel:
        wrong, good = infer(channel, with_parameter(name.encode()), infer_request())
        assert f"parameter '{name[:32]}?' is unknown" in wrong.error_message
        assert good.infer_response.raw_output_contents == [ONE]
        rows = np.ones((2, 1, 1, 4))  # one entry more often than it may be
        twice = attend_request([name] * 2, rows, (rows, rows)).SerializeToString()
        reply = {reply.id: reply for reply in attend(channel, twice, SMALL)}
        assert f"'{name[:32]}?'" in reply["sequences"].error.message
        assert reply["attack"].result.output.shape == [2, 4]
    assert "invalid UTF-8" not in server.log()
