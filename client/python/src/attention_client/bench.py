"""What calls cost: measured from Python, over lengths, widths and scoring functions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_client import scoring
from attention_client.client import Client

HIDDEN = 32  # of additive scoring
SCORINGS = ("scaled_dot_product", "additive", "gaussian", "bilinear")


@dataclass(frozen=True)
class Cost:
    """What one kind of call takes: medians, in seconds."""

    scoring: str
    batch: int
    heads: int
    length: int  # of queries and keys
    width: int
    calls: int  # that were measured
    seconds: float  # of a call, as its caller sees it
    slow_seconds: float  # nine in ten calls take no longer
    compute_seconds: float  # of computing, as the server says


def measure(
    client: Client,
    *,
    lengths: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024),
    widths: Sequence[int] = (64,),
    scorings: Sequence[str] = SCORINGS,
    batch: int = 1,
    heads: int = 8,
    seconds: float = 0.5,
) -> list[Cost]:
    """The costs of every scoring function at every length and width, in float32.

    seconds: for each of them, after a first call that is not counted; at least three
    calls.
    """
    unknown = set(scorings) - set(SCORINGS)
    if unknown:
        expected = ", ".join(SCORINGS)
        raise ValueError(f"scorings: {min(unknown)!r} (expected {expected})")
    kinds = [(s, w, n) for s in scorings for w in widths for n in lengths]
    costs = []
    for number, (name, width, length) in enumerate(kinds, 1):
        random = np.random.default_rng(seed=number)
        shape = (batch, heads, length, width)
        query, key, value = random.normal(size=(3, *shape)).astype(np.float32)
        chosen = _scoring(name, width, random)
        samples = list(_samples(client, seconds, query, key, value, chosen))
        taken, computing = np.array(samples).T
        costs.append(
            Cost(
                scoring=name,
                batch=batch,
                heads=heads,
                length=length,
                width=width,
                calls=len(samples),
                seconds=float(np.median(taken)),
                slow_seconds=float(np.quantile(taken, 0.9)),
                compute_seconds=float(np.median(computing)),
            )
        )
    return costs


def _samples(
    client: Client, seconds: float, query: Any, key: Any, value: Any, chosen: Any
) -> Iterable[tuple[float, float]]:
    client.attend(query, key, value, scoring=chosen)
    end = time.perf_counter() + seconds
    count = 0
    while count < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        result = client.attend(query, key, value, scoring=chosen)
        yield time.perf_counter() - start, result.compute_ns / 1e9
        count += 1


def _scoring(name: str, width: int, random: np.random.Generator) -> scoring.Scoring:
    def normal(*shape: int) -> Any:
        return random.normal(size=shape, scale=width**-0.5).astype(np.float32)

    if name == "additive":
        return scoring.Additive(
            normal(width, HIDDEN), normal(width, HIDDEN), normal(HIDDEN)
        )
    if name == "bilinear":
        return scoring.Bilinear(normal(width, width))
    if name == "gaussian":
        return scoring.Gaussian(sigma=width**0.5)
    return scoring.ScaledDotProduct()


def table(costs: Iterable[Cost]) -> str:
    """The costs for people to read."""
    head = (
        f"{'scoring':<19}{'length':>7}{'width':>6}{'calls':>7}"
        f"{'call ms':>10}{'9 of 10':>10}{'computing':>11}"
    )
    rows = [
        f"{cost.scoring:<19}{cost.length:>7}{cost.width:>6}{cost.calls:>7}"
        f"{cost.seconds * 1e3:>10.3f}{cost.slow_seconds * 1e3:>10.3f}"
        f"{cost.compute_seconds * 1e3:>11.3f}"
        for cost in costs
    ]
    return "\n".join([head, *rows])
