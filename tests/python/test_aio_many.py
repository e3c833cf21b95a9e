"""Requests of an async iterator, whose results come while it waits."""

import asyncio

import pytest
from failing_server import refusal
from sources import REQUEST, Silent, Waiting, run

from attention_client import DeadlineExceededError


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


def test_a_timeout_holds_while_the_source_waits():
    async def calls(client):
        source = Waiting(1)
        with pytest.raises(DeadlineExceededError, match=r"0\.3 s"):
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
