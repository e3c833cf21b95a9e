"""Shared memory that is no longer used: nothing is left, nothing is used too early."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import numpy as np
import pytest
from failing_server import FailingServer
from polling import wait_until
from regions import files, regions

from attention_client import (
    AsyncClient,
    Client,
    DeadlineExceededError,
    LocalServer,
)
from attention_client._shared_memory import Pool


def mapped(client):
    """How many regions of a client this process has in its memory."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum(f"attention-{client._pool.word}-" in line for line in maps)


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


def test_what_is_no_file_of_a_client_holds_up_nobody():
    pipe = Path(f"/dev/shm/attention-{secrets.token_hex(16)}-1")
    link = pipe.with_name(f"attention-{secrets.token_hex(16)}-1")
    os.mkfifo(pipe)
    os.utime(pipe, (0, 0))
    link.symlink_to(pipe)
    tidy = "import attention_client as a; a._shared_memory.remove_abandoned_files()"
    try:
        subprocess.run([sys.executable, "-c", tidy], check=True, timeout=60)
        assert pipe.is_fifo()
        assert link.is_symlink()
    finally:
        for path in (link, pipe):
            path.unlink()


def test_ctrl_c_between_two_regions_leaves_no_file(sharing, large, monkeypatch):
    allocate, sizes = os.posix_fallocate, []

    def interrupted(descriptor, offset, size):
        sizes.append(size)
        if len(sizes) == 2:
            raise KeyboardInterrupt
        allocate(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", interrupted)
    with Client(sharing.target) as client:
        with pytest.raises(KeyboardInterrupt):
            client.attend(*large)
        assert len(sizes) == 2
        assert not files(client)


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
