"""What goes wrong, and as which exception it arrives."""

import asyncio
import math

import grpc
import numpy as np
import pytest
from failing_server import FailingServer
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from attention_client import (
    Additive,
    AsyncClient,
    AttentionError,
    CancelledError,
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
    UnimplementedError,
    _channel,
    _messages,
    _wire,
)
from attention_client._reply import decode_streamed

SMALL = [np.ones((3, 4), np.float32)] * 3


def test_an_error_names_the_field(computing):
    with pytest.raises(InvalidArgumentError, match=r"expected|needs") as caught:
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
        ({"softcap": 10**400}, "softcap"),
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
        ({"id": 5}, "id"),
        ({"valid_lens": np.array([2**63], np.uint64)}, "valid_lens"),
        ({"attend_mask": [0, 1, 2]}, "attend_mask"),
        ({"bias": np.ma.masked_array(np.ones(3), mask=[0, 1, 0])}, "bias"),
        ({"bias": [[1.0, 2.0], [3.0]]}, "bias"),
    ],
)
def test_a_wrong_option_is_named(computing, options, field):
    with pytest.raises(InvalidArgumentError) as caught:
        computing.attend(*SMALL, **options)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "option, said",
    [
        ({"id": 5}, "expected text, such as '5'"),
        ({"softcap": "much"}, "expected a number[)]"),
        ({"scale": 10**400}, "scale: 1.*expected a number in the range of float64"),
        ({"query_offset": 1.5}, "expected an integer from -9223372036854775808"),
        ({"seed": -1}, "expected an integer from 0 to 18446744073709551615"),
        ({"weights_after_dropout": "no"}, "expected True or False"),
        ({"weights": "no"}, "weights: 'no' .expected True or False"),
        ({"lse": np.zeros(2)}, "lse: .*expected True or False"),
        ({"causal": 1}, "expected one of True, False, none"),
    ],
)
def test_a_wrong_scalar_says_what_would_be_right(client, option, said):
    with pytest.raises(InvalidArgumentError, match=said):
        client.attend(*SMALL, **option)


@pytest.mark.parametrize("timeout", [math.inf, math.nan, "5", 1e12])
def test_a_timeout_is_a_number_of_seconds(client, timeout):
    for call in (
        lambda: client.attend(*SMALL, timeout=timeout),
        lambda: client.health(timeout=timeout),
        lambda: next(client.attend_many([], timeout=timeout)),
        lambda: Client(client.target, timeout=timeout),
    ):
        with pytest.raises(InvalidArgumentError, match=r"timeout: .*expected seconds"):
            call()


@pytest.mark.parametrize("timeout", [None, 0, -1])
def test_a_client_waits_for_some_time(client, timeout):
    with pytest.raises(InvalidArgumentError, match=r"timeout: .*expected"):
        Client(client.target, timeout=timeout)


def test_no_time_left_is_a_deadline(client):
    with pytest.raises(DeadlineExceededError):
        client.attend(*SMALL, timeout=-1)
    request = dict(zip(("query", "key", "value"), SMALL, strict=True))
    with pytest.raises(DeadlineExceededError):
        list(client.attend_many([request], timeout=-1))


@pytest.mark.parametrize(
    "target",
    [
        *(5, "", None, "localhost", "localhost:", ":8001", "localhost:0"),
        *("localhost:65536", "http://localhost:8001", "https://a", "a/b:1", "::1"),
        *("a:1:2", "a:x"),
    ],
)
def test_a_target_is_a_host_and_a_port(target):
    with pytest.raises(
        InvalidArgumentError, match=r"target: .*expected HOST:PORT, such"
    ):
        Client(target)


@pytest.mark.parametrize(
    "target",
    [
        *("localhost:1", "a.example:65535", "[::1]:8001", "unix:/a", "unix:///a"),
        *("dns:a", "dns:///a:1", "ipv4:127.0.0.1:1", "xds:///a"),
    ],
)
def test_a_target_may_name_a_resolver(target):
    with Client(target) as client:
        assert client.target == target


def test_a_closed_client_says_so(server):
    request = dict(zip(("query", "key", "value"), SMALL, strict=True))
    client = Client(server.target)
    client.close()
    for call in (
        lambda: client.attend(*SMALL),
        lambda: client.health(),
        lambda: list(client.attend_many([request])),
    ):
        with pytest.raises(CancelledError, match="is closed"):
            call()

    async def of_asyncio():
        closed = AsyncClient(server.target)
        await closed.close()
        await closed.attend(*SMALL)

    with pytest.raises(CancelledError, match="is closed"):
        asyncio.run(of_asyncio())


@pytest.mark.parametrize("name", ["_call", "_start"])
def test_a_client_that_is_closed_meanwhile_says_so(server, monkeypatch, name):
    client = Client(server.target)
    # It finds it open, and another thread closes it then.
    monkeypatch.setattr(client, "_check_open", client.close)
    with pytest.raises(CancelledError, match="is closed"):
        getattr(client, name)(_channel.INFO, b"", None, None)


@pytest.mark.parametrize("said", ["", "Method not found!", "unknown service attention"])
def test_a_server_of_another_kind_is_told(said):
    def answer(_, context):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, said)

    request = dict(zip(("query", "key", "value"), SMALL, strict=True))
    with FailingServer(answer) as fake, Client(fake.target) as client:
        for call in (
            lambda: client.attend(*SMALL),
            lambda: list(client.attend_many([request])),
        ):
            with pytest.raises(UnimplementedError, match="no attention server"):
                call()


def test_what_a_server_lacks_is_told_in_its_words():
    def answer(_, context):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "this build has no such kernel")

    with (
        FailingServer(answer) as fake,
        Client(fake.target) as client,
        pytest.raises(UnimplementedError, match=r"^this build has no such kernel$"),
    ):
        client.attend(*SMALL)


@pytest.mark.parametrize(
    "key, value, expected",
    [
        ("Traceparent", "00-1", "lower-case"),
        ("trace parent", "00-1", "lower-case"),
        (5, "00-1", "lower-case"),
        ("traceparent", "ä", "printable ASCII"),
        ("traceparent", "00-1\n", "printable ASCII"),
        ("traceparent", 5, "printable ASCII"),
        ("trace-bin", "00-1", "bytes"),
    ],
)
def test_metadata_that_cannot_be_sent_is_named(client, key, value, expected):
    request = dict(zip(("query", "key", "value"), SMALL, strict=True))
    metadata = {key: value}
    for call in (
        lambda: client.attend(*SMALL, metadata=metadata),
        lambda: next(client.attend_many([request], metadata=metadata)),
    ):
        with pytest.raises(InvalidArgumentError, match=expected) as caught:
            call()
        assert caught.value.field == "metadata"
        assert repr(key) in caught.value.message
        # It may be a secret.
        assert str(value).strip() not in caught.value.message


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("token", ["s3cret\n", "s3crät", b"s3cret", 5])
def test_a_token_that_cannot_be_sent_is_named_and_not_shown(kind, token):
    with pytest.raises(InvalidArgumentError, match="printable ASCII") as caught:
        kind("127.0.0.1:8001", token=token)
    assert caught.value.field == "token"
    assert str(token) not in str(caught.value)


def test_metadata_that_is_no_mapping_is_named(client):
    pairs = [("traceparent", "00-1")]
    request = dict(zip(("query", "key", "value"), SMALL, strict=True))
    for call in (
        lambda: client.attend(*SMALL, metadata=pairs),
        lambda: client.attend(*SMALL, metadata=()),
        lambda: next(client.attend_many([request], metadata=pairs)),
        lambda: client.open_sequence("name", metadata=pairs),
    ):
        with pytest.raises(InvalidArgumentError, match="expected a mapping") as caught:
            call()
        assert caught.value.field == "metadata"


def test_metadata_that_can_be_sent_is(client):
    metadata = {"traceparent": "00-1", "x_1.y": b" ~", "trace-bin": b"\0"}
    client.attend(*SMALL, metadata=metadata)


def test_an_unknown_option_is_a_type_error(computing):
    with pytest.raises(TypeError, match=r"no option valid_length .*valid_lens"):
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
        with pytest.raises(ResourceExhaustedError, match="expected fewer") as caught:
            client.attend(large, large, large)
        assert caught.value.field is None


def test_a_message_that_grpc_cannot_count_is_refused():
    message = _wire.Message()
    message.size = 1 << 32
    with pytest.raises(ResourceExhaustedError, match="expected fewer"):
        message.join()


def test_nobody_there_is_unavailable(tmp_path):
    with (
        Client(f"unix:{tmp_path}/nobody") as client,
        pytest.raises(UnavailableError),
    ):
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

    with (
        FailingServer(answer) as fake,
        Client(fake.target) as client,
        pytest.raises(PermissionDeniedError, match="you may not") as caught,
    ):
        client.attend(*SMALL)
    assert isinstance(caught.value, PermissionError)


def full_server(details):
    """Has no room, and says so with these bytes of details."""

    def answer(_, context):
        context.set_trailing_metadata([("grpc-status-details-bin", details)])
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")

    return FailingServer(answer)


@pytest.mark.parametrize("seconds", [1, 2**62])
def test_the_time_to_try_again_is_told(seconds):
    detail = any_pb2.Any()
    delay = duration_pb2.Duration(seconds=seconds, nanos=500_000_000)
    detail.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    status = status_pb2.Status(code=8, message="full", details=[detail])
    with (
        full_server(status.SerializeToString()) as fake,
        Client(fake.target) as client,
        pytest.raises(ResourceExhaustedError, match="full") as caught,
    ):
        client.attend(*SMALL)
    assert caught.value.retry_after == seconds + 0.5


def of_kind(name, data):
    """A status with one detail of this kind."""
    detail = any_pb2.Any(type_url=f"type.googleapis.com/{name}", value=data)
    return status_pb2.Status(code=8, details=[detail]).SerializeToString()


@pytest.mark.parametrize(
    "details",
    [
        b"\xff\xff",
        of_kind("google.rpc.RetryInfo", b"\xff\xff"),
        of_kind("attention.v1.ShardError", b"\xff\xff"),
    ],
    ids=["status", "retry", "shard"],
)
def test_details_that_cannot_be_read_leave_the_error(details):
    request = dict(zip(("query", "key", "value"), SMALL, strict=True))
    with full_server(details) as fake, Client(fake.target, timeout=10) as client:
        for call in (
            lambda: client.attend(*SMALL),
            lambda: list(client.attend_many([request])),
        ):
            with pytest.raises(ResourceExhaustedError, match="full") as caught:
                call()
            assert (caught.value.retry_after, caught.value.server) == (None, None)


def test_a_streams_error_has_the_time_to_try_again():
    reply = _messages.message("attention.v1.AttendStreamResponse")(id="a")
    reply.error.code = 8
    reply.error.retry_after_ms = 1500
    name, error = decode_streamed(reply.SerializeToString())
    assert (name, type(error)) == ("a", ResourceExhaustedError)
    assert error.retry_after == 1.5


def test_a_deadline_is_a_timeout(client, normal):
    # Hours of work for one processor.
    long = np.broadcast_to(normal(1, 1), (1, 400_000, 8))
    for call in (client, Client(client.target, timeout=0.3)):
        with pytest.raises(DeadlineExceededError) as caught:
            call.attend(long, long, long, timeout=0.3 if call is client else None)
        assert isinstance(caught.value, TimeoutError)
        assert client.target in str(caught.value)
    call.close()


def test_credentials_are_grpcs(server):
    # A server without encryption does not answer a caller who expects it.
    credentials = grpc.ssl_channel_credentials()
    with (
        Client(server.target, credentials=credentials) as client,
        pytest.raises(AttentionError),
    ):
        client.attend(*SMALL, timeout=5)
