"""Async iterators of requests end with the call that reads them, however it ends."""

import asyncio
import contextlib

import pytest
from failing_server import refusal
from sources import REQUEST, Silent, Waiting, run

from attention_client import AttentionError, CancelledError


def test_a_break_ends_a_source_that_waits(server):
    async def calls(client):
        source = Waiting(1)
        async for _ in client.attend_many(source.requests()):
            await source.is_waiting.wait()
            break
        await source.is_ended.wait()

    run(calls, server.target)


@pytest.mark.parametrize("in_flight", [1, 16])
def test_aclose_ends_a_source_before_it_returns(server, in_flight):
    async def calls(client):
        source = Waiting(3)
        requests = source.requests()  # kept, so that only aclose() can end it
        results = client.attend_many(requests, in_flight=in_flight)
        await anext(results)
        await results.aclose()
        assert source.is_ended.is_set()
        assert source.is_waiting.is_set() == (in_flight == 16)

    run(calls, server.target)


def test_a_source_that_catches_its_cancellation_ends(server):
    async def calls(client):
        async def source():
            while True:
                yield REQUEST
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()

        async with contextlib.aclosing(client.attend_many(source())) as results:
            await anext(results)

    run(calls, server.target)


def test_an_error_of_a_source_does_not_wait_for_results():
    async def calls(client):
        async def source():
            yield REQUEST
            await silent.reached()
            raise KeyError("of the source")

        with pytest.raises(KeyError, match="of the source"):
            async for _ in client.attend_many(source()):
                pass

    with Silent() as silent:
        run(calls, silent.target)


def test_an_error_of_a_source_comes_while_nothing_is_outstanding(server):
    async def calls(client):
        seen = asyncio.Event()

        async def source():
            yield REQUEST
            await seen.wait()
            raise KeyError("of the source")

        results = client.attend_many(source())
        await anext(results)
        seen.set()
        with pytest.raises(KeyError, match="of the source"):
            await anext(results)

    run(calls, server.target)


def test_cancelling_ends_a_source_with_results_outstanding():
    async def calls(client):
        source = Waiting(1)
        call = asyncio.ensure_future(anext(client.attend_many(source.requests())))
        await silent.reached()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert source.is_ended.is_set()

    with Silent() as silent:
        run(calls, silent.target)


def test_cancelling_ends_a_source_with_nothing_outstanding(server):
    async def calls(client):
        source = Waiting(0)
        call = asyncio.ensure_future(anext(client.attend_many(source.requests())))
        await source.is_waiting.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert source.is_ended.is_set()

    run(calls, server.target)


class OneReply:
    """A stream whose only reply comes when a test says so."""

    def __init__(self):
        self._reply = asyncio.get_running_loop().create_future()
        self.is_read = asyncio.Event()

    async def read(self):
        self.is_read.set()
        return await self._reply

    def come(self):
        self._reply.set_result(refusal(1))

    def cancel(self):
        pass


async def one():
    yield REQUEST


@pytest.mark.parametrize(
    "source", [lambda: [REQUEST], one, lambda: Waiting(1).requests()]
)
def test_a_cancellation_that_comes_with_a_reply_is_not_lost(server, source):
    async def calls(client):
        await client.health()  # opens its channel
        stream = OneReply()
        client._attend_stream = lambda *_, **__: stream
        results = client.attend_many(source())
        call = asyncio.ensure_future(anext(results))
        await stream.is_read.wait()
        stream.come()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    run(calls, server.target)


def test_an_error_of_the_stream_ends_a_source_that_waits():
    async def calls(client):
        source = Waiting(1)
        call = asyncio.ensure_future(anext(client.attend_many(source.requests())))
        await silent.reached()
        silent.is_free.set()
        with pytest.raises(AttentionError, match="told to fail"):
            await call
        assert source.is_ended.is_set()

    with Silent() as silent:
        run(calls, silent.target)


@pytest.mark.parametrize("given", [0, 1])
def test_close_ends_a_source_that_waits(server, given):
    async def calls(client):
        source = Waiting(given)
        results = client.attend_many(source.requests())
        for _ in range(given):
            await anext(results)
        call = asyncio.ensure_future(anext(results))
        await source.is_waiting.wait()
        await client.close()
        assert source.is_ended.is_set()
        with pytest.raises(CancelledError, match="is closed"):
            await call

    run(calls, server.target)


def test_close_ends_a_source_while_the_caller_has_a_result(server):
    async def calls(client):
        source = Waiting(1)
        results = client.attend_many(source.requests())
        await anext(results)
        await client.close()
        assert source.is_ended.is_set()
        with pytest.raises(CancelledError, match="is closed"):
            await anext(results)

    run(calls, server.target)
