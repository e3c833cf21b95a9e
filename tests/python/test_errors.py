"""What goes wrong, and as which exception it arrives."""

import grpc
import numpy as np
import pytest
from failing_server import FailingServer
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from attention_client import (
    Additive,
    AttentionError,
    Client,
    DeadlineExceededError,
    InvalidArgumentError,
    LocalServer,
    NotFoundError,
    ParameterSet,
    PermissionDeniedError,
    ResourceExhaustedError,
    ScaledDotProduct,
    UnavailableError,
    _messages,
)

SMALL = [np.ones((3, 4), np.float32)] * 3


def test_an_error_names_the_field(computing):
    with pytest.raises(InvalidArgumentError, match="expected|needs") as caught:
        computing.attend(SMALL[0], np.ones((3, 5), np.float32), SMALL[2])
    assert caught.value.field == "key"
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "options, field",
    [
        ({"valid_lens": [[1.5]]}, "valid_lens"),
        ({"bias": np.array(["x"])}, "bias"),
        ({"softcap": "much"}, "softcap"),
        ({"seed": -1}, "seed"),
        ({"causal": "sideways"}, "causal"),
        ({"causal": 2}, "causal"),
        ({"empty_rows": "none"}, "empty_rows"),
        ({"window": 3}, "window"),
        ({"window": ("a", 1)}, "window_left"),
        ({"scoring": "additive"}, "scoring"),
        ({"scale": 2.0, "scoring": ScaledDotProduct()}, "scale"),
        ({"scoring": Additive(SMALL[0], "x", SMALL[0])}, "additive.w_k"),
        ({"dropout_p": 2.0, "training": True}, "dropout_p"),
    ],
)
def test_a_wrong_option_is_named(computing, options, field):
    with pytest.raises(InvalidArgumentError) as caught:
        computing.attend(*SMALL, **options)
    assert caught.value.field == field


def test_an_unknown_option_is_a_type_error(computing):
    with pytest.raises(TypeError, match="no option valid_length .*valid_lens"):
        computing.attend(*SMALL, valid_length=[3])


def test_an_unknown_parameter_set_is_not_found(computing):
    with pytest.raises(NotFoundError, match="nobody") as caught:
        computing.attend(*SMALL, scoring=ParameterSet("nobody"))
    assert caught.value.field == "parameter_set"


def test_a_limit_is_resource_exhausted():
    large = np.ones((1000, 64), np.float32)
    with (
        LocalServer(max_request_bytes="64KiB") as small,
        Client(small.target) as client,
    ):
        with pytest.raises(ResourceExhaustedError) as caught:
            client.attend(large, large, large)
        assert caught.value.field is None


def test_nobody_there_is_unavailable(tmp_path):
    with Client(f"unix:{tmp_path}/nobody") as client:
        with pytest.raises(UnavailableError):
            client.attend(*SMALL, timeout=10)


def test_a_server_that_drains_is_tried_again():
    reply = _messages.message("attention.v1.AttendResponse")(
        backend="other", output={"datatype": 1, "shape": [0]}
    ).SerializeToString()

    def answer(call, context):
        if call < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "draining")
        return reply

    with FailingServer(answer) as fake, Client(fake.target) as client:
        assert client.attend(*SMALL).backend == "other"
        assert fake.calls == 3


def test_what_a_caller_may_not_do_is_permission_denied():
    def answer(_, context):
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "you may not")

    with FailingServer(answer) as fake, Client(fake.target) as client:
        with pytest.raises(PermissionDeniedError, match="you may not") as caught:
            client.attend(*SMALL)
    assert isinstance(caught.value, PermissionError)


def test_the_time_to_try_again_is_told():
    detail = any_pb2.Any()
    delay = duration_pb2.Duration(seconds=1, nanos=500_000_000)
    detail.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    status = status_pb2.Status(code=8, message="full", details=[detail])

    def answer(_, context):
        context.set_trailing_metadata(
            [("grpc-status-details-bin", status.SerializeToString())]
        )
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")

    with FailingServer(answer) as fake, Client(fake.target) as client:
        with pytest.raises(ResourceExhaustedError, match="full") as caught:
            client.attend(*SMALL)
    assert caught.value.retry_after == 1.5


def test_a_deadline_is_a_timeout(client, normal):
    # Hours of work for one processor.
    long = np.broadcast_to(normal(1, 1), (1, 400_000, 8))
    for call in (client, Client(client.target, timeout=0.3)):
        with pytest.raises(DeadlineExceededError) as caught:
            call.attend(long, long, long, timeout=0.3 if call is client else None)
        assert isinstance(caught.value, TimeoutError)
    call.close()


def test_credentials_are_grpcs(server):
    # A server without encryption does not answer a caller who expects it.
    credentials = grpc.ssl_channel_credentials()
    with Client(server.target, credentials=credentials) as client:
        with pytest.raises(AttentionError):
            client.attend(*SMALL, timeout=5)
