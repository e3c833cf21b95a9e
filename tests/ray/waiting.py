"""Waiting for what happens in the background."""

import contextlib
import os
import signal

import psutil
import ray

from attention_client.ray import moving


def wait_until(condition):
    """Ray and the map are asked again and again; each answer takes its time."""
    for _ in range(3000):
        if condition():
            return
        ray.wait([ray.put(None)], timeout=0.02)
        moving.draining()
    raise AssertionError("it does not happen")


def wait_for_nodes(cluster, count):
    wait_until(lambda: len(cluster.nodes()) == count)


@contextlib.contextmanager
def stopped(pid):
    """The server does nothing, and its connections stay."""
    os.kill(pid, signal.SIGSTOP)
    try:
        # The signal returns before one of its threads has taken it.
        while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
            os.sched_yield()
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # it was given up
            os.kill(pid, signal.SIGCONT)
