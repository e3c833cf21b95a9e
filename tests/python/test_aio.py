"""The client for asyncio."""

import asyncio
import threading

import numpy as np
import pytest
from failing_server import FailingServer

from attention_client import (
    AsyncClient,
    DeadlineExceededError,
    InvalidArgumentError,
    UnavailableError,
)


@pytest.fixture
def run(server):
    """run(function): what function(client) answers in an event loop of its own."""

    def call(function, target=None):
        async def main():
            async with AsyncClient(target or server.target) as client:
                return await function(client)

        return asyncio.run(main())

    return call


def test_calls_give_what_the_other_client_gives(run, client, normal):
    tensors = normal(1, 3, 4), normal(1, 5, 4), normal(1, 5, 4)

    async def calls(aio):
        same = (aio.attend(*tensors, causal=True, lse=True) for _ in range(8))
        return await aio.info(), await aio.health(), await asyncio.gather(*same)

    info, health, results = run(calls)
    assert (info, health) == (client.info(), client.health())
    expected = client.attend(*tensors, causal=True, lse=True)
    for result in results:
        np.testing.assert_array_equal(result.output, expected.output)
        np.testing.assert_array_equal(result.lse, expected.lse)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_stream_answers_in_order(run, client, normal, asynchronous):
    xs = [normal(1, length, 4) for length in range(1, 60)]
    asked = [dict(query=x, key=x, value=x) for x in xs]

    async def source():
        for request in asked:
            await asyncio.sleep(0)
            yield request

    async def calls(aio):
        results = aio.attend_many(source() if asynchronous else asked)
        return [result.output async for result in results]

    for x, output in zip(xs, run(calls), strict=True):
        np.testing.assert_array_equal(output, client.attend(x, x, x).output)


def test_large_messages_flow_both_ways(run, client, normal):
    x = normal(1, 2, 512, 256)  # 1 MiB

    async def calls(aio):
        asked = [dict(query=x, key=x, value=x)] * 70
        return [r.output async for r in aio.attend_many(asked, in_flight=64)]

    expected = client.attend(x, x, x).output
    assert all((output == expected).all() for output in run(calls))


def test_errors_are_the_other_clients(run, tmp_path, normal):
    x = normal(1, 2, 4)

    async def wrong(aio):
        await aio.attend(x, x, x, softcap=-1.0)

    with pytest.raises(InvalidArgumentError) as caught:
        run(wrong)
    assert caught.value.field == "softcap"

    async def nobody(aio):
        await aio.attend(x, x, x, timeout=10)

    with pytest.raises(UnavailableError):
        run(nobody, f"unix:{tmp_path}/nobody")


def test_a_result_of_a_stream_has_a_timeout(run):
    long = np.ones((1, 400_000, 8), np.float32)

    async def calls(aio):
        aio.timeout = 0.3
        async for _ in aio.attend_many([dict(query=long, key=long, value=long)]):
            pass

    with pytest.raises(DeadlineExceededError, match="0.3 s"):
        run(calls)


def test_a_stream_reports_errors_in_place(run, normal):
    x = normal(1, 2, 4)
    good = dict(query=x, key=x, value=x)

    async def calls(aio):
        asked = [good, {**good, "softcap": -1.0}, good]
        results = aio.attend_many(asked, return_errors=True)
        return [outcome async for outcome in results]

    first, second, third = run(calls)
    assert second.field == "softcap"
    np.testing.assert_array_equal(first.output, third.output)


def test_a_cancelled_task_ends_the_call(run, normal):
    x = normal(1, 2, 4)
    started, ended = threading.Event(), threading.Event()

    def answer(_, context):
        context.add_callback(ended.set)
        started.set()
        ended.wait(timeout=60)
        return b""

    async def calls(aio):
        call = asyncio.ensure_future(aio.attend(x, x, x))
        assert await asyncio.to_thread(started.wait, 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await asyncio.to_thread(ended.wait, 60)

    with FailingServer(answer) as fake:
        run(calls, fake.target)
