"""The client for asyncio."""

import asyncio
import threading
import time

import numpy as np
import pytest
from failing_server import FailingServer

from attention_client import (
    AsyncClient,
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    LocalServer,
    NotFoundError,
    UnavailableError,
    _channel,
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


def test_a_client_may_be_made_before_its_event_loop(server, normal):
    x = normal(1, 2, 4)
    client = AsyncClient(server.target)

    async def calls():
        async with client:
            request = dict(query=x, key=x, value=x)
            streamed = [one.output async for one in client.attend_many([request])]
            return (await client.attend(x, x, x)).output, *streamed

    np.testing.assert_array_equal(*asyncio.run(calls()))


def test_a_client_belongs_to_one_event_loop(server, normal):
    x = normal(1, 2, 4)
    client = AsyncClient(server.target)

    async def call():
        await client.attend(x, x, x)

    asyncio.run(call())
    with pytest.raises(FailedPreconditionError, match="another event loop"):
        asyncio.run(call())


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

    with pytest.raises(DeadlineExceededError, match=r"0\.3 s"):
        run(calls)


def test_a_fork_that_is_cancelled_is_not_left(run):
    async def calls(aio):
        sequence = await aio.sequence(heads=1, width=1)
        call, is_made = aio._call, asyncio.Event()

        async def wait_at_describe(method, *arguments):
            if method == _channel.DESCRIBE:
                is_made.set()
                await asyncio.Event().wait()
            return await call(method, *arguments)

        aio._call = wait_at_describe
        fork = asyncio.create_task(sequence.fork(label="torn"))
        await is_made.wait()
        assert len([one async for one in aio.sequences(label="torn")]) == 1
        fork.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fork
        assert not [one async for one in aio.sequences(label="torn")]
        await sequence.delete()

    run(calls)


def test_names_of_several_servers_have_one_deadline(run, monkeypatch):
    async def calls(aio):
        now, passed, given = time.monotonic, 0, []
        monkeypatch.setattr(time, "monotonic", lambda: now() + passed)
        call = aio._call

        async def slow(method, request, timeout, metadata):
            nonlocal passed
            given.append(timeout)
            passed += 20
            return await call(method, request, timeout, metadata)

        aio._call = slow
        assert await aio.delete_sequences(["one/a", "other/a"], timeout=30) == 0
        assert given[1] <= 10 < given[0] <= 30

    run(calls)


def test_sequences_are_the_other_clients(run, client, normal):
    key, value, query = normal(2, 9, 8), normal(2, 9, 8), normal(4, 1, 8)
    step = normal(2, 1, 8), normal(2, 1, 8)

    async def calls(aio):
        form = dict(heads=2, width=8, layers=2, label="twin")
        async with await aio.sequence(**form) as made:
            await made.append(key, value, layer=1)
            outputs = [(await made.attend(query, layer=1)).output]
            result = await made.attend(query, layer=1, append=step)
            outputs.append(result.output)
            async with await made.fork() as fork:
                result = await aio.attend_sequences(
                    [made, fork], np.stack([query, query]), layer=1
                )
                outputs += list(result.output)
                assert fork.lengths == (0, 10)
            opened = await aio.open_sequence(made.name)
            await opened.truncate(0)
            assert (await made.describe()).lengths == made.lengths == (0, 0)
            listed = [one.name async for one in aio.sequences(label="twin")]
            assert listed == [made.name]
        with pytest.raises(NotFoundError, match=made.name):
            await opened.describe()
        with pytest.raises(InvalidArgumentError):
            await aio.delete_sequences("a name")
        return outputs

    outputs = run(calls)
    with client.sequence(heads=2, width=8) as sequence:
        sequence.append(key, value)
        expected = [sequence.attend(query).output]
        expected += [sequence.attend(query, append=step, position=9).output] * 3
    for output, other in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(output, other)


def test_a_file_keeps_a_sequence(run, normal, tmp_path):
    async def calls(aio):
        async with await aio.sequence(heads=1, width=2) as made:
            await made.append(normal(1, 3, 2), normal(1, 3, 2))
            assert await made.export("file") == (tmp_path / "file").stat().st_size
        async with await aio.import_sequence("file") as again:
            assert len(again) == 3

    with LocalServer(resident_folder=tmp_path) as server:
        run(calls, server.target)


def test_a_stream_reports_errors_in_place(run, normal):
    x = normal(1, 2, 4)
    good = dict(query=x, key=x, value=x)

    async def calls(aio):
        asked = [good, {**good, "softcap": -1.0}, None, good]
        results = aio.attend_many(asked, return_errors=True)
        return [outcome async for outcome in results]

    first, second, nothing, third = run(calls)
    assert second.field == "softcap"
    assert "NoneType (expected dict" in nothing.message
    np.testing.assert_array_equal(first.output, third.output)


def test_a_call_takes_no_task_beside_grpcs_own(run):
    async def calls(aio):
        made = []

        def make(loop, coroutine, **options):
            made.append(coroutine)
            return asyncio.Task(coroutine, loop=loop, **options)

        await aio.health()
        asyncio.get_running_loop().set_task_factory(make)
        await aio._unary[_channel.HEALTH](b"")
        of_grpc = len(made)
        await aio.health()
        assert len(made) == 2 * of_grpc

    run(calls)


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


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("is_cancelled", "is_closed"), [(False, True), (True, False), (True, True)]
)
def test_a_call_that_is_ended_by_close_says_so(
    normal, is_stream, is_cancelled, is_closed
):
    x = normal(1, 2, 4)
    is_reached, is_free = threading.Event(), threading.Event()

    def answer(_number, _context):
        is_reached.set()
        assert is_free.wait(60)
        return b""

    async def ask(client):
        if not is_stream:
            return await client.attend(x, x, x)
        requests = [{"query": x, "key": x, "value": x}]
        return [result async for result in client.attend_many(requests)]

    async def main(target):
        async with AsyncClient(target) as client:
            asking = asyncio.create_task(ask(client))
            await asyncio.to_thread(is_reached.wait, 60)
            if is_cancelled:
                asking.cancel()
            if is_closed:
                await client.close()
            await asking

    with FailingServer(answer) as failing:
        # A task that was cancelled is, whatever else happens.
        expected = asyncio.CancelledError if is_cancelled else CancelledError
        try:
            with pytest.raises(expected, match=None if is_cancelled else "is closed"):
                asyncio.run(main(failing.target))
        finally:
            is_free.set()
