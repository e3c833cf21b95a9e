"""What a call costs from Python, beside the C++ client and the same server, over TCP.

    tests/python/run        # once: makes the environment
    build/python-client/venv/bin/python benchmarks/python_client.py

Needs attention-server and attention-load, where --binaries says. Each round gives every
kind of call one turn, in an order by chance; the figures are medians over the rounds.
One at a time: the median of a turn's calls. On a stream: the turn's time by its calls,
with 32 in flight.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np

from attention_client import AsyncClient, Client, LocalServer

BINARIES = Path(__file__).resolve().parents[1] / "build/release/bin"
SMALL, MIDDLE, LARGE = (2, 1, 4, 8), (1, 4, 64, 64), (8, 16, 128, 64)
IN_FLIGHT = 32


class Turns:
    """The kinds of calls. Each takes a shape and gives microseconds for one call."""

    def __init__(self, server, binaries, seconds):
        self._target = server.target
        self._load_program = binaries / "attention-load"
        self._seconds = seconds
        self._client = Client(server.target, shared_memory=False)

    def _load(self, shape, *more):
        ran = subprocess.run(
            [self._load_program, "attend", "--json", *more]
            + ["--server", self._target, "--seconds", str(self._seconds)]
            + ["--shape", ",".join(map(str, shape))],
            stdout=subprocess.PIPE,
            check=True,
        )
        return json.loads(ran.stdout)

    def cpp_unary(self, shape):
        return self._load(shape)["latency_us"]["p50"]

    def cpp_stream(self, shape):
        found = self._load(shape, "--stream", "--in-flight", str(IN_FLIGHT))
        return 1e6 / found["calls_per_second"]

    def unary(self, shape):
        x = _numbers(shape)
        taken = []
        end = time.perf_counter() + self._seconds
        while not taken or time.perf_counter() < end:
            began = time.perf_counter()
            self._client.attend(x, x, x)
            taken.append(time.perf_counter() - began)
        return statistics.median(taken) * 1e6

    def stream(self, shape):
        requests = _Requests(shape, self._seconds)
        for _ in self._client.attend_many(requests, in_flight=IN_FLIGHT):
            pass
        return requests.microseconds_each()

    def aio_stream(self, shape):
        async def run():
            async with AsyncClient(self._target, shared_memory=False) as client:
                await client.health()  # connected before the clock runs
                requests = _Requests(shape, self._seconds)
                async for _ in client.attend_many(requests, in_flight=IN_FLIGHT):
                    pass
                return requests.microseconds_each()

        return asyncio.run(run())


class _Requests:
    """The same request again and again, for so many seconds."""

    def __init__(self, shape, seconds):
        x = _numbers(shape)
        self._request = {"query": x, "key": x, "value": x}
        self._seconds = seconds
        self._count = 0

    def __iter__(self):
        self._began = time.perf_counter()
        while not self._count or time.perf_counter() < self._began + self._seconds:
            self._count += 1
            yield self._request

    def microseconds_each(self):
        return (time.perf_counter() - self._began) / self._count * 1e6


def _numbers(shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


UNARY = ("cpp_unary", "unary")
STREAM = ("cpp_stream", "stream", "aio_stream")
CASES = [(SMALL, UNARY), (SMALL, STREAM), (MIDDLE, UNARY), (MIDDLE, STREAM)]
CASES += [(LARGE, UNARY)]


def _row(shape, kinds, found):
    cells = ["{:.0f} us".format(statistics.median(found[shape, k])) for k in kinds]
    how = "one at a time" if kinds is UNARY else "on a stream"
    name = "B{} H{} L{} D{}, ".format(*shape) + how
    return "| " + " | ".join([name, *cells, *[""] * (3 - len(cells))]) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--binaries", type=Path, default=BINARIES)
    given = parser.parse_args()
    turns = [(shape, kind) for shape, kinds in CASES for kind in kinds]
    found = {turn: [] for turn in turns}
    with LocalServer(given.binaries / "attention-server") as server:
        methods = Turns(server, given.binaries, given.seconds)
        for shape in (SMALL, MIDDLE, LARGE):
            methods.unary(shape)  # both sides fetch their memory
        for _ in range(given.rounds):
            for shape, kind in random.sample(turns, len(turns)):
                found[shape, kind].append(getattr(methods, kind)(shape))
    print("| | C++ | Client | AsyncClient |\n|---|---|---|---|")
    for shape, kinds in CASES:
        print(_row(shape, kinds, found))


if __name__ == "__main__":
    main()
