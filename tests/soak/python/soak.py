"""A real server under most of what callers do, for as long as asked.

tests/soak/run starts it. Fails where an answer is wrong, a call ends with a code that
it must not have, or the server's memory, descriptors or threads grow.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import grpc
import numpy as np
from attention.v1 import attention_pb2_grpc as rpc
from callers import Caller
from inference import grpc_service_pb2_grpc as oip_rpc
from problems import SoakProblem
from resources import growth, medians, sample
from running_server import RunningServer
from sequences import Sequences
from tally import Tally, describe

CALLERS = 6
# Small, so that what is too large for them is quick to make.
LIMITS = ["--max-request-bytes", "8MiB", "--max-response-bytes", "64MiB"]
LIMITS += ["--resident-memory-limit", "48MiB", "--allow-shared-memory"]
PROGRESS = 10  # seconds between lines


def soak(server, seconds, seed, tally):
    """Samples of the server, one a second."""
    ending = threading.Event()
    threads = []
    for seeds in np.random.SeedSequence(seed).spawn(CALLERS):
        caller = Caller(server, seeds, tally)
        threads.append(threading.Thread(target=caller.run, args=(ending,)))
    samples = []
    start = time.monotonic()
    for thread in threads:
        thread.start()
    try:
        while (passed := time.monotonic() - start) < seconds and server.is_running():
            if any(not thread.is_alive() for thread in threads):
                tally.note(False, "a caller died")
                break
            if (now := sample(server.pid)) is None:
                break
            samples.append(now)
            if len(samples) % PROGRESS == 0:
                print(f"[{passed:5.0f}s] {tally.line()}, {samples[-1]}", flush=True)
            ending.wait(1)
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    return samples


def wait_until_given_back(pid, before):
    """Connections of callers that are gone must go, too; within half a minute.

    None where the server has ended."""
    end = time.monotonic() + 30
    while (now := sample(pid)) and now.descriptors > before.descriptors + 4:
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    return now


def held_by_sequences(server):
    """Bytes, and how many there are."""
    with grpc.insecure_channel(server.address) as channel:
        sequences = Sequences(channel)
        return sequences.held_bytes(), len(sequences.all_names())


def try_again(server, seed):
    """A problem that an earlier soak told of, over both APIs; 0 where it is right."""
    problem = SoakProblem(seed)
    with grpc.insecure_channel(server.address) as channel:
        attend = rpc.AttentionServiceStub(channel).Attend(problem.attend_request())
        infer = oip_rpc.GRPCInferenceServiceStub(channel).ModelInfer(
            problem.infer_request()
        )
    off = [problem.farthest_of_attend(attend), problem.farthest_of_infer(infer)]
    print(describe(problem))
    print("Attend is {:.3f} tolerances off, ModelInfer {:.3f}".format(*off))
    return 0 if max(off) <= 1 else 1


def report(tally, samples, before, after):
    print(f"\n{tally.table()}\n\n{tally.line()}")
    print(f"the farthest good answer is {tally.farthest:.3f} of its tolerance off\n")
    row = "{:12}{:>12}{:>12}{:>12}{:>12}"
    print(row.format("", "at start", "first half", "second half", "after"))
    for name in ("rss", "descriptors", "threads"):
        values = [getattr(before, name), *medians(samples, name), getattr(after, name)]
        print(row.format(name, *[f"{value:.0f}" for value in values]))
    print(f"(rss in MiB; largest {max(one.rss for one in samples):.0f})")


def main():
    parser = argparse.ArgumentParser(prog="tests/soak/run")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument(
        "--problem", type=int, metavar="SEED", help="only this one, of an earlier soak"
    )
    arguments = parser.parse_args()
    if arguments.problem is not None:
        with tempfile.TemporaryDirectory() as folder:
            server = RunningServer(Path(folder) / "log", *LIMITS)
            try:
                return try_again(server, arguments.problem)
            finally:
                server.stop()
    print(f"soak: {arguments.minutes:g} minutes, --seed {arguments.seed}", flush=True)
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        server = RunningServer(Path(folder) / "log", *LIMITS)
        try:
            held_before = held_by_sequences(server)
            before = sample(server.pid)
            samples = soak(server, arguments.minutes * 60, arguments.seed, tally)
            after = server.is_running() and wait_until_given_back(server.pid, before)
            if not after:
                print(f"the server died: {server.log()[-5000:]}")
                return 1
            held = held_by_sequences(server)
            tally.note(
                held == held_before,
                f"(bytes, sequences) held: {held_before} at first, {held} at the end",
            )
            tally.note(server.stop() == 0, "the server does not stop as it should")
        finally:
            if server.is_running():
                server.stop()
    given_back = after.descriptors <= before.descriptors + 4
    tally.note(given_back, f"descriptors: {before} at the start, {after} at the end")
    enough = len(samples) >= 8
    tally.note(enough, f"{len(samples)} samples are too few to compare")
    if enough:
        for resource in growth(samples):
            tally.note(False, resource)
        report(tally, samples, before, after)
    tally.note(tally.checked > 0, "no answer was checked")
    print("soak: failed" if tally.problems else "soak: passed")
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
