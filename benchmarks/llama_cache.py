"""Tokens a second of a small Llama, by where its keys and values are.

    tests/python/run --models       # once: makes the environment
    build/python-client-models/venv/bin/python benchmarks/llama_cache.py

Needs attention-server, where --binaries says; it has its default settings. The model has
8 layers of 32 heads over 8 of width 64, and random weights, in FP32. It runs in this
process, with --threads of PyTorch's, and waits while the server computes. Each cache is
filled with random keys; generate() then makes --tokens tokens. Each round gives every way
one turn, in an order by chance; the figures are medians over the rounds.
"""

import argparse
import random
import statistics
import time
from pathlib import Path

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from attention_client import Client, LocalServer
from attention_client.transformers import NAME, ServiceCache, register

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
WAYS = ("in process, sdpa", "service, keys sent", "service, keys there")


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


def turn(model, client, way, keys, tokens):
    """Tokens a second, and the tokens."""
    here = way != WAYS[2]
    cache = DynamicCache(config=CONFIG) if here else ServiceCache(CONFIG, client)
    fill(cache, keys)
    model.set_attn_implementation("sdpa" if way == WAYS[0] else NAME)
    prompt = torch.ones(1, keys.shape[2] + 1, dtype=torch.long)
    options = {"do_sample": False, "pad_token_id": 0, "past_key_values": cache}
    began = time.perf_counter()
    made = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=tokens,
        **options,
    )
    taken = time.perf_counter() - began
    cache.reset()
    return tokens / taken, made[0, prompt.shape[1] :].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--contexts", default="1024,4096,16384")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--binaries", type=Path, default=BINARIES)
    given = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    contexts = [int(text) for text in given.contexts.split(",")]
    turns = [(context, way) for context in contexts for way in WAYS]
    found = {one: [] for one in turns}
    with (
        LocalServer(given.binaries / "attention-server") as server,
        Client(server.target) as client,
        torch.no_grad(),
    ):
        register(client)
        model = LlamaForCausalLM(CONFIG).eval()
        keys = {length: torch.randn(1, HEADS, length, WIDTH) for length in contexts}
        for _ in range(given.rounds):
            said = {}
            for context, way in random.sample(turns, len(turns)):
                rate, made = turn(model, client, way, keys[context], given.tokens)
                found[context, way].append(rate)
                if said.setdefault(context, made) != made:
                    raise SystemExit(f"{way}, {context} keys: other tokens")
    print("| keys | " + " | ".join(WAYS) + " |")
    print("|---" * (len(WAYS) + 1) + "|")
    for context in contexts:
        cells = [f"{statistics.median(found[context, way]):.1f}/s" for way in WAYS]
        print("| " + " | ".join([str(context), *cells]) + " |")


if __name__ == "__main__":
    main()
