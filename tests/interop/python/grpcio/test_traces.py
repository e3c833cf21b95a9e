"""W3C's traceparent: returned with the call, and in the server's log."""

import time

import grpc
import numpy as np
import pytest
from inference import grpc_service_pb2 as pb
from test_messages import SDPA, raw_request

TRACE = "00-{:032x}-b7ad6b7169203331-01"


def good_request():
    rows = np.ones((1, 1, 2, 4), np.float32)
    return raw_request({"query": rows, "key": rows, "value": rows})


def returned(call):
    return dict(call.trailing_metadata()).get("traceparent")


def test_a_call_ends_with_the_trace_that_it_came_with(stub):
    trace = TRACE.format(1)
    _, call = stub.ModelInfer.with_call(good_request(), metadata=[("traceparent", trace)])
    assert returned(call) == trace


def test_so_does_a_stream(stub):
    trace = TRACE.format(2)
    call = stub.ModelStreamInfer(iter([good_request()]), metadata=[("traceparent", trace)])
    assert [reply.error_message for reply in call] == [""]
    assert returned(call) == trace


def test_a_failures_line_in_the_log_has_it(server, stub):
    trace = TRACE.format(3)
    with pytest.raises(grpc.RpcError) as raised:
        stub.ModelInfer(
            pb.ModelInferRequest(model_name=SDPA), metadata=[("traceparent", trace)]
        )
    assert returned(raised.value) == trace
    end = time.monotonic() + 60
    while f"trace={trace}" not in server.log():
        assert time.monotonic() < end, server.log()
        time.sleep(0.01)


@pytest.mark.parametrize("trace", ["", "00-xyz", TRACE.format(0), TRACE.format(4) + "0", TRACE.format(10).upper()])
def test_what_is_no_trace_is_passed_over(stub, trace):
    _, call = stub.ModelInfer.with_call(good_request(), metadata=[("traceparent", trace)])
    assert returned(call) is None
