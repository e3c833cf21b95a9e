"""Attention to keys that two servers have, one half each.

    python examples/python/shards.py [HOST:PORT HOST:PORT]

Each server answers for its half, with the logarithm of the sum of its exponentials, and
the answers are merged: what one server would have said of all keys. Without addresses
it starts two servers of its own. Needs the package attention_client (client/python).
"""

import contextlib
import sys

import numpy as np

from attention_client import Client, LocalServer, merge


def main(targets: list[str]) -> None:
    random = np.random.default_rng(seed=1)
    query = random.normal(size=(1, 8, 4, 64)).astype(np.float32)  # (B, H, Lq, D)
    key = random.normal(size=(1, 8, 1000, 64)).astype(np.float32)
    value = random.normal(size=(1, 8, 1000, 64)).astype(np.float32)
    # The queries are the last tokens: each sees the keys up to its own position.
    options = dict(causal=True, query_offset=996, lse=True)

    with contextlib.ExitStack() as stack:
        for _ in range(2 - len(targets)):
            targets.append(stack.enter_context(LocalServer()).target)
        clients = [stack.enter_context(Client(target)) for target in targets]

        parts = []
        for number, client in enumerate(clients):
            start = number * 500
            half = slice(start, start + 500)
            part = client.attend(
                query, key[:, :, half], value[:, :, half], key_offset=start, **options
            )
            parts.append(part)
        merged = merge(parts)

        whole = clients[0].attend(query, key, value, **options)
    difference = np.abs(merged.output - whole.output).max()
    print(f"output {merged.output.shape}, off by {difference:.1e} from one server's")
    assert difference < 1e-5


if __name__ == "__main__":
    main(sys.argv[1:])
