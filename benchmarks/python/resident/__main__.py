"""One step of decoding, by where the keys are: on the server, sent, or in process.

    tests/python/run        # once: makes the environment of the client
    benchmarks/resident                 # with the peers, which come from PyPI
    benchmarks/resident --no-peers      # without them

32 heads over 8 of width 128, one query for each sequence. In process is the same
computation without a service, on pages of 64 keys in random order, by attention-benchmark;
vLLM's attention over its own pages likewise. Triton holds the keys in its Python backend
and computes with PyTorch, in the faster of two ways. Everyone has as many threads as the
server; "computing" is what the server says that it took. Keys are sent in as many calls as
messages of 128 MiB need. Each round gives every way one turn, in an order by chance; the
figures are medians over the rounds, ratios the medians of the rounds' own. All answers are
first held against FP64.
"""

import argparse
import random
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from resident.case import TYPES, Case
from resident.peers import InProcess, Triton, Vllm
from resident.report import HEADS, row

from attention_client import AttentionError, Client, LocalServer

BINARIES = Path(__file__).resolve().parents[3] / "build/release/bin"


def parse():
    parser = argparse.ArgumentParser(
        prog="benchmarks/resident",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--threads", type=int, default=0, help="0: one per processor")
    parser.add_argument(
        "--cases",
        default="32x4096,1x1024,1x4096,1x16384,1x65536,1x131072",
        help="sequences x keys, with commas",
    )
    parser.add_argument(
        "--dtype", choices=list(TYPES), default="BF16", help="of keys and values"
    )
    parser.add_argument("--binaries", type=Path, default=BINARIES)
    parser.add_argument(
        "--no-peers", action="store_true", help="without vLLM and Triton"
    )
    parser.add_argument("--vllm", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--triton", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(case, ways, given):
    """Seconds of each round, by way. Every way has one turn in each of them."""
    found = {name: [] for name in ways}
    for _ in range(given.rounds):
        for name in random.sample(list(ways), len(ways)):
            found[name].append(ways[name].measure(given.seconds))
    return row(case, found, statistics.median(ways["resident"].computing))


def measure_case(client, given, triton, threads, shape):
    """A row of the table; one of reasons where the server has no such sequences."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            case = Case(stack, client, *shape, given.dtype)
        except AttentionError as error:
            batch, length = shape
            return f"| {batch} x {length} | left out: {error}" + " |" * (len(HEADS) - 1)
        ways = {"resident": case.resident, "sent": case.sent}
        ways["in process"] = InProcess(stack, given.binaries, case, threads, folder)
        if given.vllm:
            ways["vLLM"] = Vllm(stack, given.vllm, case, threads, folder)
        if triton:
            ways["Triton"] = Triton(stack, triton.address, case)
        return measure(case, {n: w for n, w in ways.items() if w.can}, given)


def main():
    given = parse()
    print("| " + " | ".join(HEADS) + " |")
    print("|---" * len(HEADS) + "|", flush=True)
    with ExitStack() as stack:
        server = stack.enter_context(
            LocalServer(
                given.binaries / "attention-server",
                worker_threads=given.threads,
                resident_memory_limit="8GiB",
                max_request_bytes="1GiB",
            )
        )
        client = stack.enter_context(Client(server.target, shared_memory=False))
        threads = client.info().worker_threads
        triton = None
        if given.triton:
            triton = stack.enter_context(Triton.server(given.triton, threads))
        for text in given.cases.split(","):
            shape = tuple(map(int, text.split("x")))
            print(measure_case(client, given, triton, threads, shape), flush=True)


if __name__ == "__main__":
    main()
