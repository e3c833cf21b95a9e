"""What a call of attention_engine costs beyond the call in C++, in one process each.

    tests/python/run        # once: makes the environment
    build/python-client/venv/bin/python benchmarks/python_engine.py

Needs attention-benchmark, where --binaries says: it validates and computes, into memory
that is there. Both have one thread, and take turns; the figures are medians over the
rounds.
"""

import argparse
import json
import statistics
import subprocess
import timeit
from pathlib import Path

import numpy as np

from attention_engine import Engine

BINARIES = Path(__file__).resolve().parents[1] / "build/release/bin"
SHAPES = [(2, 1, 4, 8), (1, 4, 64, 64), (8, 16, 128, 64)]


def in_cpp(program, shape, seconds):
    batch, heads, length, width = map(str, shape)
    ran = subprocess.run(
        [program, "--batch", batch, "--query-heads", heads, "--query-length", length]
        + ["--width", width, "--threads", "1", "--benchmark_format=json"]
        + [f"--benchmark_min_time={seconds}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    found = json.loads(ran.stdout)["benchmarks"][0]
    assert found["time_unit"] == "ns"
    return found["real_time"] / 1e3


def in_python(engine, shape, seconds, **options):
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    timer = timeit.Timer(lambda: engine.attend(x, x, x, **options))
    once = timer.timeit(10) / 10
    count = max(1, int(seconds / once))
    return timer.timeit(count) / count * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn")
    parser.add_argument("--binaries", type=Path, default=BINARIES)
    given = parser.parse_args()
    program = given.binaries / "attention-benchmark"
    engine = Engine(threads=1)
    print("| | C++ | Engine | Engine, out= |\n|---|---|---|---|")
    for shape in SHAPES:
        out = np.empty(shape, np.float32)
        found = [
            (
                in_cpp(program, shape, given.seconds),
                in_python(engine, shape, given.seconds),
                in_python(engine, shape, given.seconds, out=out),
            )
            for _ in range(given.rounds)
        ]
        cells = [f"{statistics.median(each):.1f} us" for each in zip(*found)]
        print("| B{} H{} L{} D{} | ".format(*shape) + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
