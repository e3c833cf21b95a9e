"""A decoder's step over several servers: measured here, and simulated for more nodes.

    tests/ray/run -k nothing || true     # once: makes the environment
    build/ray/venv/bin/python benchmarks/sharded.py

Measured: steps over 1 to 4 servers with one thread each on this machine, without Ray,
which takes no part in a step. They share its processors, with the client. The
simulation takes what a call, a key and a merge cost from the same run, and is first
compared with what was measured, then asked for nodes with processors of their own.
Last, a client that asks all servers is compared with a tree of servers that ask others
and merge: measured over 8 and 16, simulated over up to 64.
"""

import argparse
import contextlib
import heapq
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from attention_client import Client, LocalServer
from attention_client.info import SequenceForm
from attention_client.ray import (
    Range,
    Replica,
    SequenceMap,
    ShardedSequence,
    hedging,
    moving,
    tree,
)
from attention_client.ray.fanout import merged_arrays

HEADS, QUERY_HEADS, WIDTH = 8, 32, 128
BYTES = QUERY_HEADS * (WIDTH + 1) * 4  # of a query, and of an answer with its lse


class Servers:
    """What a ShardedSequence needs of a cluster whose map does not change."""

    timeout = 60.0

    def __init__(self, stack, count):
        self._threads = stack.enter_context(ThreadPoolExecutor(count))
        self._recent = hedging.Recent()
        self._trees = tree.Trees()
        servers = [
            stack.enter_context(LocalServer(worker_threads=1, peers="127.0.0.1:*"))
            for _ in range(count)
        ]
        self._pids = [server.pid for server in servers]
        # Else the system may have several wait for one processor beside an idle one.
        processors = sorted(os.sched_getaffinity(0))
        for number, pid in enumerate(self._pids):
            _pin(pid, processors[number % len(processors)])
        self.clients = [
            stack.enter_context(Client(server.target, **moving.plain({})))
            for server in servers
        ]

    def _client(self, node):
        return self.clients[int(node)]

    def sequence(self, count, keys, normal):
        """Keys cut into as many ranges as there are servers."""
        form = SequenceForm(HEADS, WIDTH, WIDTH, "float32", 1)
        size = -(-keys // count // 64) * 64
        ranges = []
        for number in range(count):
            made = self.clients[number].sequence(heads=HEADS, width=WIDTH)
            ranges.append(
                Range(number * size, size, (Replica(str(number), made.name),))
            )
        known = SequenceMap("benchmark", form, 1, size, 1, tuple(ranges))
        sequence = ShardedSequence(self, known, [0])
        for start in range(0, keys, 4096):
            rows = min(4096, keys - start)
            sequence.append(normal(HEADS, rows, WIDTH), normal(HEADS, rows, WIDTH))
        return sequence

    def processor_time(self):
        """What they have taken so far, in seconds."""
        ticks = 0
        for pid in self._pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


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
    """Seconds for a key where as many servers compute as there are processors."""
    parts = sequence._map.ranges[: len(os.sched_getaffinity(0))]
    end = time.perf_counter() + seconds

    def one(part):
        replica = part.replicas[0]
        shard = servers._client(replica.node).open_sequence(replica.name)
        times = []
        while time.perf_counter() < end or len(times) < 5:
            times.append(shard.attend(query).compute_ns * 1e-9 / part.capacity)
        return statistics.median(times)

    with ThreadPoolExecutor(len(parts)) as threads:
        return statistics.median(threads.map(one, parts))


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


class Processors:
    """So many, which do one thing after the other; None: as many as are wanted."""

    def __init__(self, count):
        self._free = None if count is None else [0.0] * count

    def work(self, ready, seconds, of_server=None):
        """When what can begin at ready has taken so long, at whichever is free."""
        if self._free is None:
            return ready + seconds
        free = self._free
        if of_server is None:
            at = min(range(len(free)), key=free.__getitem__)
        else:
            at = of_server % len(free)
        free[at] = max(ready, free[at]) + seconds
        return free[at]


def simulate(nodes, keys, costs, processors=None, link=None):
    """Seconds of a step: events of sends, kernels, answers and the merge.

    processors: that the client and its servers share; None: each has its own. link:
    (seconds of a round trip, bytes a second); None: one machine.
    """
    there, rate = (link[0] / 2, link[1]) if link else (0.0, float("inf"))
    key = costs["key"] if processors is None or nodes == 1 else costs["key_of_many"]
    pool = Processors(processors)
    client = 0.0  # until when it is at work
    answers = []
    events = [(0.0, "send", 0)]
    while events:
        now, what, node = heapq.heappop(events)
        if what == "send":
            client = pool.work(now, costs["send"]) + BYTES / rate
            heapq.heappush(events, (client + there, "serve", node))
            if node + 1 < nodes:
                heapq.heappush(events, (client, "send", node + 1))
        else:
            done = pool.work(now, costs["call"] + keys / nodes * key, node)
            answers.append(done + there)
    for answer in sorted(answers):
        client = max(client, answer) + BYTES / rate
    return client + costs["merge"] * nodes


def simulate_tree(nodes, keys, costs, link, groups=None):
    """Seconds of a step in which the client asks some servers, and they the others.

    A server takes costs["relay"] for each one that it asks, its answer included.
    groups: how many the client asks; None: as tree.groups() has it.
    """
    there, wire = link[0] / 2, BYTES / link[1]
    own = keys / nodes * costs["key"]
    groups = groups or len(tree.groups(range(nodes)))
    client = 0.0
    answers = []
    for group in range(groups):
        client += costs["send"] + wire
        sent = begun = client + there + costs["call"]
        merged = begun + own
        for _ in range((nodes - group - 1) // groups):
            sent += costs["relay"] + wire
            merged = max(merged, sent + 2 * there + costs["call"] + own + wire)
        answers.append(merged + there)
    for answer in sorted(answers):
        client = max(client, answer) + wire
    return client + costs["merge"] * groups


def best_groups(nodes, costs, link):
    """How many servers a client should ask where steps are short."""

    def took(groups):
        return simulate_tree(nodes, 64 * nodes, costs, link, groups)

    return min(range(1, nodes + 1), key=took)


@contextlib.contextmanager
def most_asked(count):
    """Servers above which a tree is asked."""
    before, tree.MOST_ASKED = tree.MOST_ASKED, count
    try:
        yield
    finally:
        tree.MOST_ASKED = before


def measure_trees(normal, query, options):
    """Tables of steps over many servers; what a server takes for each that it asks."""
    relays = []
    print(
        "| servers | client asks all: ms | its processor | tree: ms | its processor |"
    )
    print("|---|---|---|---|---|")
    for count in (4, 8, 16):
        with contextlib.ExitStack() as stack:
            servers = Servers(stack, count)
            step = servers.sequence(count, count * 64, normal)
            times = {count: [], 0: []}  # by the most that are asked: all, or a tree
            for _ in range(options.rounds):
                for most, found in times.items():
                    with most_asked(most):
                        found.append(measured(servers, step, query, options.seconds))
        flat, of_tree = (
            [statistics.median(one) for one in zip(*found, strict=True)]
            for found in times.values()
        )
        shown = (flat[0], flat[1], of_tree[0], of_tree[1])
        print(f"| {count} | " + " | ".join(f"{of * 1e3:.2f}" for of in shown) + " |")
        asked = count - len(tree.groups(range(count)))
        relays.append((of_tree[2] - flat[2]) / asked)
    return max(statistics.median(relays), 0)


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


def compare_with_tree(costs):
    """A table: the fan-out of a client beside that of a tree."""
    print(f"A client that asks all, and a tree ({costs['relay'] * 1e6:.0f} us), ms")
    print(
        "| nodes | 64 keys each | tree | 16384 keys each | tree | 262144 | tree | "
        "the client asks | best |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    link = (100e-6, 25e9 / 8)
    for nodes in (4, 8, 16, 32, 64):
        figures = [
            how(nodes, nodes * keys, costs, link=link)
            for keys in (64, 16384, 262144)
            for how in (simulate, simulate_tree)
        ]
        asked = f"{len(tree.groups(range(nodes)))} | {best_groups(nodes, costs, link)}"
        shown = " | ".join(f"{of * 1e3:.2f}" for of in figures)
        print(f"| {nodes} | {shown} | {asked} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="of each figure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", type=int, default=16384)
    options = parser.parse_args()
    random = np.random.default_rng(seed=1)

    def normal(*shape):
        return random.normal(size=shape).astype(np.float32)

    query = normal(QUERY_HEADS, 1, WIDTH)
    steps = {n: [] for n in (1, 2, 3, 4)}
    small = {n: [] for n in steps}
    slowest = {n: [] for n in steps}
    with contextlib.ExitStack() as stack:
        servers = Servers(stack, max(steps))
        large = {n: servers.sequence(n, options.keys, normal) for n in steps}
        floor = {n: servers.sequence(n, n * 64, normal) for n in steps}
        for _ in range(options.rounds):
            for n in steps:
                steps[n].append(timed(lambda: large[n].attend(query), options.seconds))
                small[n].append(timed(lambda: floor[n].attend(query), options.seconds))
                alone = []
                for part in large[n]._map.ranges:
                    replica = part.replicas[0]
                    one = servers._client(replica.node).open_sequence(replica.name)
                    alone.append(
                        timed(lambda: one.attend(query, lse=True), options.seconds / n)
                    )
                slowest[n].append(max(alone))
        key_of_many = statistics.median(
            at_once(servers, large[4], query, options.seconds)
            for _ in range(options.rounds)
        )
        # Not by the clock: four servers on few processors wait for each other.
        one, four = (
            processor_time(lambda n=n: floor[n].attend(query), options.seconds)
            for n in (1, 4)
        )
    steps, small, slowest = (
        {n: statistics.median(times) for n, times in of.items()}
        for of in (steps, small, slowest)
    )
    parts, lses = normal(16, QUERY_HEADS, 1, WIDTH), np.zeros((16, QUERY_HEADS, 1))
    merge = timed(lambda: merged_arrays(list(parts), lses), options.seconds) / 16
    costs = {
        "merge": merge,
        "key": (steps[1] - small[1]) / (options.keys - 64),
        "key_of_many": key_of_many,
        "send": max((four - one) / 3 - merge, 0),
    }
    costs["call"] = max(small[1] - costs["send"] - merge - 64 * costs["key"], 0)
    costs["relay"] = measure_trees(normal, query, options)
    print("costs in us:", {name: round(of * 1e6, 3) for name, of in costs.items()})
    processors = len(os.sched_getaffinity(0))
    print(f"{options.keys} keys on {processors} processors, ms")
    print("| nodes | step | slowest shard alone | 64 keys each | simulated |")
    print("|---|---|---|---|---|")
    for n in steps:
        told = simulate(n, options.keys, costs, processors)
        figures = (steps[n], slowest[n], small[n], told)
        print(f"| {n} | " + " | ".join(f"{of * 1e3:.2f}" for of in figures) + " |")
    print("Simulated: nodes with a processor each, a link of 100 us and 25 Gbit/s")
    print(
        "| keys | "
        + " | ".join(f"{n} nodes" for n in (1, 8, 64))
        + " | of linear at 8 |"
    )
    print("|---|---|---|---|---|")
    for keys in (10**5, 10**6, 10**7, 10**8, 10**9):
        link = (100e-6, 25e9 / 8)
        of = {n: simulate(n, keys, costs, link=link) for n in (1, 8, 64)}
        shown = " | ".join(f"{1e3 * of[n]:.1f} ms" for n in of)
        print(f"| {keys:.0e} | {shown} | {of[1] / of[8] / 8:.2f} |")
    compare_with_tree(costs)


if __name__ == "__main__":
    main()
