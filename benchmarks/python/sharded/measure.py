"""Steps over servers on this machine, by the clock and by what processors they take."""

import contextlib
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import many_servers
from sharded.layout import HEADS, WIDTH

from attention_client.ray import tree


class Servers(many_servers.Servers):
    """Each with one thread, on one processor, or a node of `apart`."""

    def __init__(self, count, apart=None):
        if apart is None:
            super().__init__(count, **many_servers.LOOPBACK)
        else:
            super().__init__(count, flags_of=apart.flags)
        self._pids = [server.pid for server in self.servers]
        if apart is None:
            self._pin()

    def _pin(self):
        """Else the system may have several wait for one processor beside an idle one."""
        processors = sorted(os.sched_getaffinity(0))
        for number, pid in enumerate(self._pids):
            _pin(pid, processors[number % len(processors)])

    def over(self, count, keys, normal, ranges=None):
        """A sequence of so many keys over so many servers; ranges: None: one at each."""
        ranges = ranges or count
        size = -(-keys // ranges // 64) * 64
        sequence = self.sequence(HEADS, WIDTH, size, ranges=ranges, count=count)
        for start in range(0, keys, 4096):
            rows = min(4096, keys - start)
            sequence.append(normal(HEADS, rows, WIDTH), normal(HEADS, rows, WIDTH))
        return sequence

    def shards(self, sequence):
        """Each range, as a sequence of its server."""
        return [
            self._client(one.node).open_sequence(one.name)
            for part in sequence._map.ranges
            for one in part.replicas
        ]

    def ask_each_other(self):
        """Whether steps over all of them go through a tree, as most_asked() has it."""
        return self._trees.is_for(len(self.servers))

    def processor_time(self):
        """What they have taken so far, in seconds."""
        return 1e-9 * sum(
            int((thread / "schedstat").read_text().split()[0])
            for pid in self._pids
            for thread in Path(f"/proc/{pid}/task").iterdir()
        )


def _pin(pid, processor):
    """A process, with all threads that it has."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {processor})


def timed(call, seconds):
    """The median of a call's times, in seconds."""
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def at_once(servers, sequence, query, seconds):
    """Seconds for a key at each server, where all of a sequence's compute at once.

    Other programs may take more of one than of another.
    """
    shards = servers.shards(sequence)
    end = time.perf_counter() + seconds

    def one(shard):
        times = []
        while time.perf_counter() < end or len(times) < 5:
            times.append(shard.attend(query).compute_ns * 1e-9 / len(shard))
        return statistics.fmean(times)  # with the slices that others take

    with ThreadPoolExecutor(len(shards)) as threads:
        return list(threads.map(one, shards))


def processor_time(call, seconds):
    """What a call takes of this program's processors, in seconds; the least of some."""
    least = float("inf")
    for _ in range(5):
        start, calls = time.process_time(), 0
        end = time.perf_counter() + seconds / 5
        while time.perf_counter() < end or calls < 5:
            call()
            calls += 1
        least = min(least, (time.process_time() - start) / calls)
    return least


@contextlib.contextmanager
def most_asked(count):
    """Servers above which a tree is asked."""
    before, tree.MOST_ASKED = tree.MOST_ASKED, count
    try:
        yield
    finally:
        tree.MOST_ASKED = before


def measured(servers, step, query, seconds):
    """A step's median time, and what it takes of client's and servers' processors."""
    calls = 0

    def call():
        nonlocal calls
        step.attend(query)
        calls += 1

    call()
    own, theirs, calls = time.process_time(), servers.processor_time(), 0
    median = timed(call, seconds)
    own, theirs = time.process_time() - own, servers.processor_time() - theirs
    return median, own / calls, theirs / calls
