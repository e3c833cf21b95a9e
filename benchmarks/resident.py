"""One step of decoding, by where the keys are: on the server, sent, or in process.

    tests/python/run        # once: makes the environment
    build/python-client/venv/bin/python benchmarks/resident.py

Needs attention-server and attention-benchmark, where --binaries says. 32 heads over 8 of
width 128, one query for each sequence. In process is the same computation without a
service, on pages of 64 keys in random order, by attention-benchmark with as many threads
as the server has; "computing" is what the server says that it took. Keys are sent in as
many calls as messages of 128 MiB need. Each round gives every way one turn, in an order by
chance; the figures are medians over the rounds.
"""

import argparse
import json
import random
import statistics
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import ml_dtypes
import numpy as np

from attention_client import Client, LocalServer

BINARIES = Path(__file__).resolve().parents[1] / "build/release/bin"
HEADS, KV_HEADS, WIDTH = 32, 8, 128
TYPES = {"BF16": ml_dtypes.bfloat16, "FP32": np.float32}
WAYS = ("in process", "resident", "sent")
KEYS_OF_AN_APPEND = 8192
# Of keys and values in one message.
MOST_SENT_BYTES = 128 << 20


class Case:
    """`batch` sequences of `length` keys of a type."""

    def __init__(self, stack, client, batch, length, name):
        self.batch, self.length, self.name = batch, length, name
        self._client = client
        generator = np.random.default_rng(1)

        def numbers(*shape):
            return generator.standard_normal(shape, np.float32).astype(TYPES[name])

        self._keys = numbers(KV_HEADS, length, WIDTH)
        self._query = numbers(batch, HEADS, 1, WIDTH)
        self._sequences = []
        for _ in range(batch):
            sequence = client.sequence(
                heads=KV_HEADS, width=WIDTH, dtype={"BF16": "bfloat16"}.get(name, "float32")
            )
            self._sequences.append(stack.enter_context(sequence))
            for first in range(0, length, KEYS_OF_AN_APPEND):
                some = self._keys[:, first : first + KEYS_OF_AN_APPEND]
                sequence.append(some, some)
        each = 2 * self._keys.nbytes
        self.bytes = batch * each
        self._in_one_message = max(1, min(batch, MOST_SENT_BYTES // each))

    def resident(self):
        """Seconds, and those of them that the server computes."""
        began = time.perf_counter()
        result = self._client.attend_sequences(self._sequences, self._query)
        return time.perf_counter() - began, result.compute_ns / 1e9

    def sent(self):
        """Seconds."""
        seconds = 0.0
        for first in range(0, self.batch, self._in_one_message):
            query = self._query[first : first + self._in_one_message]
            keys = np.broadcast_to(self._keys, (len(query), *self._keys.shape)).copy()
            began = time.perf_counter()
            self._client.attend(query, keys, keys)
            seconds += time.perf_counter() - began
        return seconds


def in_process(binaries, case, threads, seconds):
    """Seconds."""
    ran = subprocess.run(
        [binaries / "attention-benchmark", "--batch", str(case.batch), "--page", "64"]
        + ["--query-heads", str(HEADS), "--kv-heads", str(KV_HEADS)]
        + ["--query-length", "1", "--key-length", str(case.length)]
        + ["--width", str(WIDTH), "--dtype", case.name, "--threads", str(threads)]
        + ["--benchmark_format=json", f"--benchmark_min_time={seconds}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    (figures,) = json.loads(ran.stdout)["benchmarks"]
    scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[figures["time_unit"]]
    return figures["real_time"] * scale


def of_turn(turn, seconds):
    """The median of what a turn gives, as often as fits."""
    taken = [turn()]  # once before: connected, memory touched
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < 3:
        taken.append(turn())
    return statistics.median(taken[1:])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--threads", type=int, default=0, help="0: one per processor")
    parser.add_argument(
        "--cases",
        default="32x4096,1x1024,1x4096,1x16384,1x65536,1x131072",
        help="sequences x keys, with commas",
    )
    parser.add_argument("--dtype", choices=list(TYPES), default="BF16")
    parser.add_argument("--binaries", type=Path, default=BINARIES)
    given = parser.parse_args()
    cases = [tuple(map(int, text.split("x"))) for text in given.cases.split(",")]
    print("| sequences x keys | MiB | in process | resident | of it computing | sent |", end="")
    print(" resident / in process | sent / resident |")
    print("|---" * 8 + "|")
    with (
        LocalServer(
            given.binaries / "attention-server",
            worker_threads=given.threads,
            resident_memory_limit="8GiB",
            max_request_bytes="1GiB",
        ) as server,
        Client(server.target, shared_memory=False) as client,
    ):
        threads = client.info().worker_threads
        for batch, length in cases:
            with ExitStack() as stack:
                case = Case(stack, client, batch, length, given.dtype)
                print(row(case, given, threads), flush=True)


def row(case, given, threads):
    found = {way: [] for way in WAYS}
    computing, ratios, gains = [], [], []

    def resident():
        seconds, computed = case.resident()
        computing.append(computed)
        return seconds

    for _ in range(given.rounds):
        of_round = {}
        for way in random.sample(WAYS, len(WAYS)):
            if way == "in process":
                of_round[way] = in_process(given.binaries, case, threads, given.seconds)
            else:
                turn = resident if way == "resident" else case.sent
                of_round[way] = of_turn(turn, given.seconds)
            found[way].append(of_round[way])
        ratios.append(of_round["resident"] / of_round["in process"])
        gains.append(of_round["sent"] / of_round["resident"])
    inside, there, sent = (statistics.median(found[way]) * 1e3 for way in WAYS)
    return (
        f"| {case.batch} x {case.length} | {case.bytes / 2**20:.0f} | {inside:.2f} ms "
        f"| {there:.2f} ms | {statistics.median(computing) * 1e3:.2f} ms | {sent:.1f} ms "
        f"| {statistics.median(ratios):.2f} | {statistics.median(gains):.1f} |"
    )


if __name__ == "__main__":
    main()
