"""Requests of an async iterator, whose results come while it waits."""

import asyncio
import contextlib
import gc
import threading

import grpc
import numpy as np
import pytest
from failing_server import FailingServer, refusal

from attention_client import (
    AsyncClient,
    AttentionError,
    CancelledError,
    DeadlineExceededError,
)

ONES = np.ones((1, 2, 4), np.float32)
REQUEST = dict(query=ONES, key=ONES, value=ONES)
SOON = 60  # seconds, for what must happen at all


class Waiting:
    """A source that gives so many requests, and then waits without end."""

    def __init__(self, count):
        self._count = count
        self.is_waiting, self.is_ended = asyncio.Event(), asyncio.Event()

    async def requests(self):
        try:
            for _ in range(self._count):
                yield REQUEST
            self.is_waiting.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # as one does that closes something
            self.is_ended.set()


class Silent(FailingServer):
    """A server that gives no answer until it is told to fail."""

    def __init__(self):
        self.is_reached, self.is_free = threading.Event(), threading.Event()
        super().__init__(self._fail)

    def _fail(self, _, context):
        self.is_reached.set()
        assert self.is_free.wait(SOON)
        context.abort(grpc.StatusCode.INTERNAL, "told to fail")

    async def reached(self):
        assert await asyncio.to_thread(self.is_reached.wait, SOON)

    def __exit__(self, *_):
        self.is_free.set()
        super().__exit__()


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


def run(function, target):
    """Runs function(client), which leaves no task and no error that nobody has got."""

    async def main():
        said = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: said.append(context["message"]))
        async with AsyncClient(target) as client:
            await asyncio.wait_for(function(client), 2 * SOON)
            if left := asyncio.all_tasks() - {asyncio.current_task()}:
                # Some of gRPC's were cancelled a moment ago.
                _, left = await asyncio.wait(left, timeout=10)
            assert not left
        gc.collect()  # at the latest here, asyncio says what has gone unfinished
        assert not said

    asyncio.run(main())


def test_a_request_may_follow_from_the_result_before(server):
    async def calls(client):
        given, seen = 0, asyncio.Semaphore(0)

        async def source():
            yield REQUEST
            for _ in range(4):
                await seen.acquire()
                yield REQUEST

        async for _ in client.attend_many(source()):
            given += 1
            seen.release()
        assert given == 5

    run(calls, server.target)


def test_no_more_than_in_flight_are_taken_ahead(server):
    async def calls(client):
        taken = given = 0

        async def source():
            nonlocal taken
            for _ in range(20):
                taken += 1
                assert taken - given <= 3
                yield REQUEST

        async for _ in client.attend_many(source(), in_flight=3):
            assert given > 0 or taken == 3
            for _ in range(5):  # the source may run, and has no room
                await asyncio.sleep(0)
            given += 1
        assert given == 20

    run(calls, server.target)


def test_with_one_in_flight_a_source_runs_after_the_caller(server):
    async def calls(client):
        is_done = True

        async def source():
            nonlocal is_done
            for _ in range(3):
                assert is_done
                is_done = False
                yield REQUEST

        async for _ in client.attend_many(source(), in_flight=1):
            for _ in range(5):
                await asyncio.sleep(0)
            is_done = True

    run(calls, server.target)


def test_a_source_is_of_one_task(server):
    async def calls(client):
        tasks = set()

        async def source():
            try:
                for _ in range(3):
                    tasks.add(asyncio.current_task())
                    yield REQUEST
            finally:
                tasks.add(asyncio.current_task())

        async for _ in client.attend_many(source(), in_flight=1):
            pass
        assert len(tasks) == 1
        tasks.clear()
        results = client.attend_many(source(), in_flight=1)
        await anext(results)
        await results.aclose()
        assert len(tasks) == 1

    run(calls, server.target)


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


def test_a_timeout_holds_while_the_source_waits():
    async def calls(client):
        source = Waiting(1)
        with pytest.raises(DeadlineExceededError, match="0.3 s"):
            async for _ in client.attend_many(source.requests(), timeout=0.3):
                pass
        assert source.is_ended.is_set()

    with Silent() as silent:
        run(calls, silent.target)


def test_replies_to_others_leave_a_result_its_timeout(server):
    class Backwards:
        def __init__(self):
            self._left = [3, 2, 1]

        async def read(self):
            return refusal(self._left.pop(0))

        def cancel(self):
            pass

    async def calls(client):
        await client.health()  # opens its channel
        client._attend_stream = lambda *_, **__: Backwards()
        loop, read, given = asyncio.get_running_loop(), client._read, []
        now, passed = loop.time, 0
        loop.time = lambda: now() + passed

        async def slow(feed, stream, left, timeout):
            nonlocal passed
            given.append(left)
            reply = await read(feed, stream, left, timeout)
            passed += 10
            return reply

        client._read = slow
        results = client.attend_many([REQUEST] * 3, timeout=30, return_errors=True)
        assert [str(one)[-1] async for one in results] == ["1", "2", "3"]
        assert 30 >= given[0] > 20 >= given[1] > 10 >= given[2]

    run(calls, server.target)


def test_no_timeout_counts_while_nothing_is_outstanding(server):
    async def calls(client):
        loop, seen = asyncio.get_running_loop(), asyncio.Event()
        now, passed = loop.time, 0
        loop.time = lambda: now() + passed

        async def source():
            nonlocal passed
            yield REQUEST
            await seen.wait()
            for _ in range(5):  # until the caller waits
                await asyncio.sleep(0)
            passed = 60
            for _ in range(5):  # until each timer has run that is due
                await asyncio.sleep(0)
            yield REQUEST

        given = 0
        async for _ in client.attend_many(source(), timeout=30):
            given += 1
            seen.set()
        assert given == 2

    run(calls, server.target)
