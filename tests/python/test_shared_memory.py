"""Tensors through shared memory: the same answers, and nothing left behind."""

import asyncio
import errno
import os
import secrets
import signal
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import ml_dtypes
import numpy as np
import pytest
from failing_server import FailingServer
from polling import wait_until

from attention_client import (
    Additive,
    AsyncClient,
    Bilinear,
    Client,
    DeadlineExceededError,
    Gaussian,
    InvalidArgumentError,
    LocalServer,
    NotFoundError,
    ParameterSet,
    ScaledDotProduct,
    _messages,
)
from attention_client._shared_memory import Pool

REGIONS = "/inference.GRPCInferenceService/SystemSharedMemoryStatus"


@pytest.fixture(scope="module")
def sharing():
    with LocalServer(allow_shared_memory=True) as running:
        yield running


@pytest.fixture
def both(sharing):
    """A client over the wire, and one through shared memory."""
    with (
        Client(sharing.target, shared_memory=False) as wire,
        Client(sharing.target) as shared,
    ):
        yield wire, shared


@pytest.fixture
def large(normal):
    """Query, key and value, large enough for shared memory."""
    return [normal(2, 4, 96, 64), normal(2, 4, 160, 64), normal(2, 4, 160, 48)]


def regions(target):
    """The names of the regions that the server knows."""
    response = _messages.message("inference.SystemSharedMemoryStatusResponse")
    with grpc.insecure_channel(target) as channel:
        return set(response.FromString(channel.unary_unary(REGIONS)(b"")).regions)


def files(client):
    return list(Path("/dev/shm").glob(f"attention-{client._pool.word}-*"))


def mapped(client):
    """How many regions of a client this process has in its memory."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum(f"attention-{client._pool.word}-" in line for line in maps)


def normals(*shape):
    return np.random.default_rng(seed=2).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"id": "mine", "weights": True, "lse": True, "causal": True},
        {"causal": "bottom_right", "window": (20, None), "softcap": 3.0, "lse": True},
        {"valid_lens": [0, 100], "empty_rows": "uniform", "weights": True},
        {"bias": normals(96, 160), "attend_mask": normals(4, 96, 160) > 0},
        {"causal": True, "query_offset": 3, "key_offset": 1},
        {"causal": True, "query_offsets": [3, 60], "sinks": normals(4)},
        {"alibi_slopes": normals(4), "scale": 0.1},
        {
            "training": True,
            "dropout_p": 0.5,
            "seed": 2**64 - 1,
            "weights_after_dropout": True,
            "weights": True,
        },
        {"scoring": ScaledDotProduct(0.5)},
        {"scoring": Gaussian(2.0)},
        {"scoring": Bilinear(normals(64, 64), scale=0.1)},
        {"scoring": Additive(normals(64, 8), normals(64, 8), normals(8))},
    ],
)
def test_every_option_means_what_it_means_over_the_wire(both, large, options):
    expected, result = (client.attend(*large, **options) for client in both)
    np.testing.assert_array_equal(result.output, expected.output)
    for name in ("weights", "lse"):
        if options.get(name):
            np.testing.assert_array_equal(
                getattr(result, name), getattr(expected, name)
            )
        else:
            assert getattr(result, name) is None
    assert result.id == expected.id
    assert (result.backend, result.kernel) == (expected.backend, expected.kernel)
    assert result.compute_ns > 0
    assert both[1]._pool.names()
    assert not both[0]._pool


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_datatypes_come_back_as_over_the_wire(both, large, kind):
    expected, result = (
        client.attend(*(array.astype(kind) for array in large)) for client in both
    )
    assert result.output.dtype == expected.output.dtype
    np.testing.assert_array_equal(result.output, expected.output)


@pytest.mark.parametrize(
    "options, kind, field",
    [
        ({"dropout_p": 2.0, "training": True}, InvalidArgumentError, "dropout_p"),
        ({"valid_lens": [1, 999]}, InvalidArgumentError, "valid_lens"),
        ({"scoring": ParameterSet("unknown")}, NotFoundError, None),
        ({"seed": -1}, InvalidArgumentError, "seed"),
        ({"causal": "sideways"}, InvalidArgumentError, "causal"),
    ],
)
def test_mistakes_are_named_as_over_the_wire(both, large, options, kind, field):
    for client in both:
        with pytest.raises(kind) as caught:
            client.attend(*large, **options)
        assert field in (None, caught.value.field)
        client.attend(*large)


@pytest.mark.parametrize("k", [0, 161, 10**10, 10**30])
def test_no_memory_is_taken_for_more_of_the_largest_than_keys(both, large, k):
    _, client = both
    with pytest.raises(InvalidArgumentError) as caught:
        client.attend(*large, top_k=k)
    assert caught.value.field == "top_k"
    assert not client._pool.names()
    assert client._pool.is_on()
    assert client.attend(*large, top_k=160).top_k_weights.shape == (2, 4, 96, 160)
    assert client._pool.names()


def test_shapes_that_do_not_fit_are_named(both, large):
    for query in (large[0][0], large[0][..., 1:], np.ones((0, 4, 96, 64), np.float32)):
        with pytest.raises(InvalidArgumentError):
            both[1].attend(query, *large[1:])


def test_results_are_the_callers_own(both, large):
    _, client = both
    queries = [large[0] * factor for factor in (1, 2, 3)]
    results = [client.attend(query, *large[1:]).output for query in queries]
    expected = [both[0].attend(query, *large[1:]).output for query in queries]
    for result, same in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, same)
        result[...] = 0  # which the next ones must not see
    client.close()
    np.testing.assert_array_equal(results[1], 0)


def test_memory_is_used_again(both, large):
    _, client = both
    for _ in range(50):
        client.attend(*large, weights=True)
    assert len(client._pool.names()) <= 3  # a result lives until the next one is there


def test_results_that_are_kept_do_not_take_all_regions(both, large):
    _, client = both
    kept = [client.attend(*large, weights=True) for _ in range(80)]
    assert len(client._pool.names()) <= 70
    for result in kept:
        np.testing.assert_array_equal(result.weights, kept[0].weights)


def test_threads_share_a_client(both, large):
    wire, client = both
    queries = [large[0] * factor for factor in range(1, 5)]
    expected = [wire.attend(query, *large[1:]).output for query in queries]
    differences = []

    def work(query, same):
        for _ in range(10):
            output = client.attend(query, *large[1:]).output
            differences.append(np.abs(output - same).max())

    threads = [
        threading.Thread(target=work, args=both)
        for both in zip(queries, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differences == [0] * 40


def test_asyncio_has_it_as_well(sharing, both, large):
    async def calls():
        async with AsyncClient(sharing.target) as client:
            found = await asyncio.gather(*(client.attend(*large) for _ in range(4)))
            assert client._pool.names()
            return found

    expected = both[0].attend(*large).output
    for result in asyncio.run(calls()):
        np.testing.assert_array_equal(result.output, expected)
    assert not regions(sharing.target)


def test_clients_of_one_process_have_regions_of_their_own(sharing, both, large):
    wire, first = both

    def check(client, factor):
        tensors = [array * factor for array in large]
        output = client.attend(*tensors).output
        np.testing.assert_array_equal(output, wire.attend(*tensors).output)
        assert client._pool.is_on()
        names = set(client._pool.names())
        assert names and names <= regions(sharing.target)
        return names

    names = check(first, 1)
    with Client(sharing.target) as second:
        assert check(second, 2).isdisjoint(names)
        # Opened before, and called after the second one is closed.
        third = Client(sharing.target)
    with third:
        assert check(third, 3).isdisjoint(names)
        check(first, 4)
        check(third, 5)


def test_a_region_of_anothers_name_is_left_to_it(sharing, both, large):
    wire, client = both
    expected = wire.attend(*large).output
    with Client(sharing.target) as other:
        other._pool.word = client._pool.word
        client.attend(*large)
        np.testing.assert_array_equal(other.attend(*large).output, expected)
        assert not other._pool.names()
    assert set(client._pool.names()) <= regions(sharing.target)
    np.testing.assert_array_equal(client.attend(*large).output, expected)


def test_a_closed_client_leaves_nothing(sharing, large):
    with Client(sharing.target) as client:
        client.attend(*large)
        assert regions(sharing.target) == set(client._pool.names())
        assert not files(client)
    assert not regions(sharing.target)


def test_a_closed_client_has_no_memory_but_of_results_that_are_held(sharing, large):
    with Client(sharing.target) as client:
        result = client.attend(*large, weights=True).weights
        client.attend(*large, weights=True)
        assert mapped(client) > 1
    assert mapped(client) == 1
    del result
    assert mapped(client) == 0


PROGRAM = """
import sys, numpy as np
from attention_client import Client
client = Client(sys.argv[1])
x = np.ones((4, 256, 128), np.float32)
result = client.attend(x, x, x)
print(*client._pool.names(), flush=True)
if len(sys.argv) > 2:
    sys.stdin.read()
"""


def run(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_program_that_ends_leaves_nothing(sharing):
    with run(sharing.target) as program:
        output, _ = program.communicate()
    assert program.returncode == 0
    assert output.split()
    assert not regions(sharing.target)
    assert not any(Path("/dev/shm", name).exists() for name in output.split())


def test_what_a_killed_client_has_left_goes_by_itself(sharing):
    with run(sharing.target, "wait") as program, run(sharing.target, "wait") as other:
        names = set(program.stdout.readline().split())
        others = set(other.stdout.readline().split())
        assert names and names | others <= regions(sharing.target)
        os.kill(program.pid, signal.SIGKILL)
        wait_until(lambda: not names & regions(sharing.target), "the regions are gone")
        assert others <= regions(sharing.target)  # of a living one: they stay


def test_the_next_client_removes_files_that_a_killed_one_has_left(sharing, large):
    # As if killed between making and removing them.
    word = secrets.token_hex(16)
    left, young = (Path(f"/dev/shm/attention-{word}-{i}") for i in (1, 2))
    foreign = Path(f"/dev/shm/attention-weights-{word}")
    for path in (left, young, foreign):
        path.touch()
    for path in (left, foreign):
        os.utime(path, (0, 0))
    try:
        with Client(sharing.target) as client:
            client.attend(*large)
        assert not left.exists()
        assert young.exists()  # its client may be about to lock it
        assert foreign.exists()  # its name is none that a client makes
    finally:
        for path in (left, young, foreign):
            path.unlink(missing_ok=True)


def test_a_server_that_does_not_allow_it_is_called_over_the_wire(client, both, large):
    expected = both[0].attend(*large).output
    for _ in range(2):
        np.testing.assert_array_equal(client.attend(*large).output, expected)
    assert not client._pool.is_on()
    assert not files(client)


def test_a_server_started_anew_is_told_again(tmp_path, large):
    options = dict(allow_shared_memory=True, grpc_unix_socket=tmp_path / "socket")
    with Client(f"unix:{tmp_path}/socket") as client:
        for _ in range(2):
            with LocalServer(**options):
                outputs = [client.attend(*large).output for _ in range(3)]
                np.testing.assert_array_equal(outputs[0], outputs[2])
                assert regions(client.target) & set(client._pool.names())


def test_a_call_is_not_repeated_into_memory_that_may_still_be_written(large):
    calls = []

    def infer(_, context):
        calls.append("through shared memory")
        context.abort(grpc.StatusCode.UNAVAILABLE, "draining")

    def attend(_, __):
        calls.append("over the wire")
        return b""

    answers = dict.fromkeys(
        (f"SystemSharedMemory{name}" for name in ("Register", "Status", "Unregister")),
        lambda _, __: b"",
    )
    with (
        FailingServer(attend, inference={**answers, "ModelInfer": infer}) as failing,
        Client(failing.target) as client,
    ):
        client.attend(*large)
        assert not client._pool._idle
    assert calls == ["through shared memory", "over the wire"]


def test_memory_of_a_call_that_timed_out_is_not_used_again(normal):
    # Hours of work for one processor.
    long = np.broadcast_to(normal(1, 1), (1, 400_000, 8))
    with (
        # Its own: one that has learned how fast it is may refuse the call at once.
        LocalServer(allow_shared_memory=True) as server,
        Client(server.target) as client,
    ):
        with pytest.raises(DeadlineExceededError):
            client.attend(long, long, long, timeout=0.3)
        assert client._pool.names()
        assert not client._pool._idle


def test_memory_of_a_cancelled_call_is_not_used_again(sharing, large):
    async def calls():
        async with AsyncClient(sharing.target) as client:
            await client.attend(*large)
            before = client._pool.names()
            call = asyncio.create_task(client.attend(*large))
            await asyncio.sleep(0)  # lets it begin
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert set(before) == set(client._pool.unwanted())

    asyncio.run(calls())


def test_without_room_it_goes_over_the_wire(both, large, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    expected, result = (client.attend(*large).output for client in both)
    np.testing.assert_array_equal(result, expected)
    assert not both[1]._pool.is_on()
    assert not files(both[1])


def test_a_forked_childs_result_is_not_a_later_one_of_its_parent(both, large):
    wire, client = both
    result = client.attend(*large, weights=True).weights
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)
        result[...] = 0
        os._exit(0)
    del result
    queries = [large[0] * factor for factor in (2, 3)]
    kept = [client.attend(q, *large[1:], weights=True).weights for q in queries]
    os.write(write, b"!")
    assert os.waitpid(child, 0)[1] == 0
    for descriptor in (read, write):
        os.close(descriptor)
    for query, weights in zip(queries, kept, strict=True):
        expected = wire.attend(query, *large[1:], weights=True).weights
        np.testing.assert_array_equal(weights, expected)
    assert client._pool.is_on()


def test_a_forked_child_does_not_use_its_parents_memory():
    pool = Pool()
    assert pool.is_on()
    child = os.fork()
    if child == 0:
        os._exit(int(pool.is_on()))
    assert os.waitpid(child, 0)[1] == 0
