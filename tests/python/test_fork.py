"""Clients in the children that os.fork() makes: they say so, and hold up nobody."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from attention_client import AsyncClient, Client, FailedPreconditionError

ONES = [np.ones((2, 2), np.float32)] * 3

# What a child runs as a script does, and ends as one: with all destructors.
BUSY_PARENT = """if True:
    import os, sys, threading
    import numpy as np
    from attention_client import AttentionError, Client, FailedPreconditionError

    ones = [np.ones((2, 2), np.float32)] * 3
    request = dict(query=ones[0], key=ones[1], value=ones[2])
    client = Client(sys.argv[1])
    stream = client.attend_many([request] * 100, in_flight=2)
    next(stream)
    stop = threading.Event()

    def call():
        while not stop.is_set():
            client.attend(*ones)

    def refused(way):
        try:
            way()
        except FailedPreconditionError as error:
            return "spawn" in str(error)
        return False

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(int(sys.argv[2])):
        child = os.fork()
        if child == 0:
            ways = lambda: client.attend(*ones), lambda: next(stream)
            ways += lambda: list(client.attend_many([request])), client.health
            ways += (lambda: Client(sys.argv[1]),)
            good = all([refused(way) for way in ways])
            client.close()
            del client, stream
            sys.exit(0 if good else 3)
        children.append(child)
    print(*(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
    stop.set()
    for thread in threads:
        thread.join()
    client.attend(*ones)
    assert len(list(stream)) == 99
"""


def in_child(function):
    """The exit code of a child in which the function ran; 0: it returned, -9: hung."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    watchdog = threading.Timer(60, os.kill, (pid, signal.SIGKILL))
    watchdog.start()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    watchdog.cancel()
    return code


def test_children_of_a_busy_parent_are_refused_and_end(server):
    # Python 3.12 warns of any fork beside threads.
    quiet = ["-W", "ignore::DeprecationWarning"]
    program = [sys.executable, *quiet, "-c", BUSY_PARENT, server.target, "20"]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert ended.stderr == ""
    assert ended.stdout.split() == ["0"] * 20


def test_an_async_client_is_refused_in_a_child(server):
    async def main():
        async with AsyncClient(server.target) as client:
            await client.attend(*ONES)

            def call():
                for make in (lambda: client, lambda: AsyncClient(server.target)):
                    with pytest.raises(FailedPreconditionError, match="spawn"):
                        make().attend(*ONES).send(None)

            return in_child(call)

    assert asyncio.run(main()) == 0


def test_a_child_of_an_idle_parent_makes_its_own(server):
    with Client(server.target) as client:
        client.attend(*ONES)

        def call():
            with pytest.raises(FailedPreconditionError, match="made in this process"):
                client.attend(*ONES)
            with Client(server.target) as own:
                own.attend(*ONES, timeout=30)

        assert [in_child(call) for _ in range(3)] == [0] * 3
        client.attend(*ONES)


def attend(client):
    return client.attend(*ONES).output.shape


def test_a_forkserver_starts_processes_that_take_clients(client):
    client.attend(*ONES)
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        assert pool.apply_async(attend, (client,)).get(timeout=120) == (2, 2)
