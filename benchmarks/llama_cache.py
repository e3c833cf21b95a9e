"""Tokens a second of a small Llama, by where its keys and values are.

    tests/python/run --models       # once: makes the environment
    build/python-client-models/venv/bin/python benchmarks/llama_cache.py

Needs attention-server, where --binaries says; it has its default settings. The model has
8 layers of 32 heads over 8 of width 64, and random weights, in FP32. It runs in this
process, with --threads of PyTorch's, and waits while the server computes; the engine has
as many. Each cache is filled with random keys; generate() then makes --tokens tokens. Each round gives every way
one turn, in an order by chance; the figures are medians over the rounds. The last column
is how much faster than sdpa the engine with keys of its own is, the median of the rounds'
own ratios.

--in-process leaves the service out and counts processor time: for a machine that others
use as well.
"""

import argparse
import contextlib
import random
import statistics
import time
from pathlib import Path

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from attention_client import Client, LocalServer
from attention_client.transformers import ServiceCache, register
from attention_engine import Engine

BINARIES = Path(__file__).resolve().parents[1] / "build/release/bin"
LAYERS, HEADS, WIDTH = 8, 8, 64
CONFIG = LlamaConfig(
    vocab_size=1000,
    hidden_size=1024,
    intermediate_size=2048,
    num_hidden_layers=LAYERS,
    num_attention_heads=32,
    num_key_value_heads=HEADS,
    head_dim=WIDTH,
    max_position_embeddings=1 << 20,
    eos_token_id=None,
)
# What the table has: transformers' name for it, and whether a ServiceCache has the keys.
WAYS = {
    "in process, sdpa": ("sdpa", False),
    "engine, keys in PyTorch": ("engine", False),
    "engine, keys there": ("engine", True),
    "service, keys sent": ("service", False),
    "service, keys there": ("service", True),
}


def fill(cache, keys):
    """Each layer has the same keys, which are their own values."""
    if isinstance(cache, DynamicCache):
        for layer in range(LAYERS):
            cache.update(keys, keys, layer)
        return cache
    cache.update(keys[:, :, :0], keys[:, :, :0], 0)  # makes the sequence
    for layer in range(LAYERS):
        cache.sequences[0].append(keys, keys, layer)
    return cache


def turn(model, clients, way, keys, tokens, clock):
    """Tokens a second, and the tokens."""
    name, there = WAYS[way]
    cache = (
        ServiceCache(CONFIG, clients[name]) if there else DynamicCache(config=CONFIG)
    )
    fill(cache, keys)
    model.set_attn_implementation(name)
    prompt = torch.ones(1, keys.shape[2] + 1, dtype=torch.long)
    options = {"do_sample": False, "pad_token_id": 0, "past_key_values": cache}
    began = clock()
    made = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=tokens,
        **options,
    )
    taken = clock() - began
    cache.reset()
    return tokens / taken, made[0, prompt.shape[1] :].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--contexts", default="1024,4096,16384")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument(
        "--threads", type=int, default=1, help="of PyTorch and the engine"
    )
    parser.add_argument("--in-process", action="store_true")
    parser.add_argument("--binaries", type=Path, default=BINARIES)
    given = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    contexts = [int(text) for text in given.contexts.split(",")]
    clock = time.process_time if given.in_process else time.perf_counter
    with contextlib.ExitStack() as open_ones, torch.no_grad():
        clients = {"engine": open_ones.enter_context(Engine(threads=given.threads))}
        if not given.in_process:
            server = LocalServer(given.binaries / "attention-server")
            target = open_ones.enter_context(server).target
            clients["service"] = open_ones.enter_context(Client(target))
        for name, client in clients.items():
            register(client, name)
        ways = [way for way, (name, _) in WAYS.items() if name in {"sdpa", *clients}]
        found = measure(clients, ways, contexts, given, clock)
    print("| keys | " + " | ".join([*ways, "engine / sdpa"]) + " |")
    print("|---" * (len(ways) + 2) + "|")
    for context in contexts:
        cells = [f"{statistics.median(found[context, way]):.1f}/s" for way in ways]
        both = zip(
            found[context, "engine, keys there"],
            found[context, "in process, sdpa"],
            strict=True,
        )
        cells.append(f"{statistics.median(ours / theirs for ours, theirs in both):.2f}")
        print("| " + " | ".join([str(context), *cells]) + " |")


def measure(clients, ways, contexts, given, clock):
    """Tokens a second of every round, by context and way."""
    model = LlamaForCausalLM(CONFIG).eval()
    keys = {length: torch.randn(1, HEADS, length, WIDTH) for length in contexts}
    turns = [(context, way) for context in contexts for way in ways]
    found = {one: [] for one in turns}
    for _ in range(given.rounds):
        said = {}
        for context, way in random.sample(turns, len(turns)):
            rate, made = turn(model, clients, way, keys[context], given.tokens, clock)
            found[context, way].append(rate)
            if said.setdefault(context, made) != made:
                raise SystemExit(f"{way}, {context} keys: other tokens")
    return found


if __name__ == "__main__":
    main()
