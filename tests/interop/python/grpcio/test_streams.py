"""ModelStreamInfer through generated stubs."""

import grpc
import pytest
from test_messages import SDPA, raw_request


def test_an_error_is_a_message_and_the_stream_goes_on(stub, problem):
    requests = [
        raw_request(problem.tensors),
        raw_request(problem.tensors, model="nobody"),
        raw_request(problem.tensors),
    ]
    replies = list(stub.ModelStreamInfer(iter(requests)))
    assert [bool(reply.error_message) for reply in replies] == [False, True, False]
    assert "'nobody'" in replies[1].error_message
    assert replies[2].infer_response.model_name == SDPA


def test_an_error_ends_the_stream_where_that_is_asked_for(stub, problem):
    requests = [raw_request(problem.tensors, model="nobody")]
    stream = stub.ModelStreamInfer(
        iter(requests), metadata=[("triton_grpc_error", "true")]
    )
    with pytest.raises(grpc.RpcError) as raised:
        list(stream)
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND
    assert "'nobody'" in raised.value.details()


def test_an_empty_stream(stub):
    assert list(stub.ModelStreamInfer(iter([]))) == []
