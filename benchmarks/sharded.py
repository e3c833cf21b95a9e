"""A decoder's step over several servers: measured here, and simulated for more nodes.

    tests/ray/run -k nothing || true     # once: makes the environment
    build/ray/venv/bin/python benchmarks/sharded.py

Measured: steps over 1 to 4 servers with one thread each on this machine, without Ray,
which takes no part in a step. They share its processors. The simulation takes what a
call, a key and a merge cost from the same run, and is first compared with what was
measured, then asked for nodes with processors of their own. Last, it compares one
client that asks all nodes with a tree, whose inner nodes would be servers that ask
others and merge: which is not built.
"""

import argparse
import contextlib
import heapq
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

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
        servers = [
            stack.enter_context(LocalServer(worker_threads=1)) for _ in range(count)
        ]
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

    def delete(self, sequence):
        for part in sequence._map.ranges:
            for replica in part.replicas:
                self._client(replica.node).delete_sequences([replica.name])


def timed(call, seconds):
    """The median of a call's times, in seconds."""
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


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


def simulate(nodes, keys, costs, processors=None, link=None):
    """Seconds of a step: events of sends, kernels, answers and the merge.

    processors: that the servers share; None: each has its own. link: (seconds of a
    round trip, bytes a second); None: one machine.
    """
    there, rate = (link[0] / 2, link[1]) if link else (0.0, float("inf"))
    free = [0.0] * (processors or nodes)
    client = 0.0
    answers = []
    for _ in range(nodes):
        client += costs["send"] + BYTES / rate
        arrived = client + there
        begun = max(arrived, heapq.heappop(free))
        done = begun + costs["call"] + keys / nodes * costs["key"]
        heapq.heappush(free, done)
        answers.append(done + there)
    for answer in sorted(answers):
        client = max(client, answer) + BYTES / rate
    return client + costs["merge"] * nodes


def simulate_tree(nodes, keys, costs, link):
    """Seconds of a step in which the client asks sqrt(nodes) servers, and they others.

    A server takes costs["relay"] for each one that it asks, its answer included.
    """
    there, wire = link[0] / 2, BYTES / link[1]
    own = keys / nodes * costs["key"]
    groups = round(nodes**0.5)
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


def compare_with_tree(costs):
    """A table: the fan-out of a client beside that of a tree."""
    print(f"A client that asks all, and a tree ({costs['relay'] * 1e6:.0f} us), ms")
    print("| nodes | 64 keys each | tree | 16384 keys each | tree | 262144 | tree |")
    print("|---|---|---|---|---|---|---|")
    link = (100e-6, 25e9 / 8)
    for nodes in (4, 8, 16, 32, 64):
        figures = [
            how(nodes, nodes * keys, costs, link=link)
            for keys in (64, 16384, 262144)
            for how in (simulate, simulate_tree)
        ]
        print(f"| {nodes} | " + " | ".join(f"{of * 1e3:.2f}" for of in figures) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="of each figure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", type=int, default=16384)
    parser.add_argument(
        "--relay",
        type=float,
        default=45,
        help="us of a server for each one that it would ask, such as what "
        "attention-load --in-flight 8 takes of a processor for a call of this size",
    )
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
        "send": max((four - one) / 3 - merge, 0),
        "relay": options.relay * 1e-6,
    }
    costs["call"] = max(small[1] - costs["send"] - merge - 64 * costs["key"], 0)
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
