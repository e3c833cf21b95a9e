"""Requests to reflection, which needs no caller."""

from attacked_server import PATIENCE
from grpc import StatusCode
from messages import SMALL, field

REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


def ask(channel, number, name):
    """A stream with one request, whose field of this number is `name`."""
    request = iter([field(number, name)])
    return channel.stream_stream(REFLECTION)(request, timeout=PATIENCE)


def test_names_that_take_long_to_look_up_are_refused(start):
    # protobuf looks up the name as far as each of its dots.
    server = start()
    channels = [server.channel() for _ in range(4)]
    streams = [ask(channel, 4, b"." * 300_000) for channel in channels]
    assert server.call(SMALL, timeout=10) == StatusCode.OK
    for stream in streams:
        assert stream.code() == StatusCode.INVALID_ARGUMENT
        assert "300004 bytes" in stream.details()
    for channel in channels:
        channel.close()


def test_a_name_that_is_known_is_answered(start):
    with start().channel() as channel:
        answer = next(ask(channel, 4, b"attention.v1.AttentionService.AttendStream"))
        assert b"attention/v1/attention.proto" in answer
        unknown = next(ask(channel, 4, b"." * 1000))
        assert b"is not known here" in unknown


def test_each_kind_of_request_has_the_limit(start):
    with start().channel() as channel:
        for number in (1, 3, 4, 5, 6, 7):
            stream = ask(channel, number, b"." * 2000)
            assert stream.code() == StatusCode.INVALID_ARGUMENT, number
