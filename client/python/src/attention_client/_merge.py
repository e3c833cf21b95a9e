"""Results of shards as the result of all keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from attention_client._arrays import Array, like, to_numpy
from attention_client._reply import TENSORS, Result
from attention_client.errors import InvalidArgumentError


def merge(results: Iterable[Result], *, packed: bool = False) -> Result:
    """The result of all keys from results for shards of them.

    results: for the same queries, each with other keys and values, in any order,
    computed anywhere; each asked for with lse=True, rows without keys as zeros, and at
    most one of them with sinks. packed: they are of packed batches, with lse (Hq, T).

        parts = [one.attend(query, key[..., :n, :], value[..., :n, :], lse=True),
                 other.attend(query, key[..., n:, :], value[..., n:, :], lse=True)]
        output = merge(parts).output

    Output, in the shards' datatype, and lse are merged, the other arrays are None.
    Times are those of the slowest shard; id, backend and kernel are the first one's. A
    merged result can be merged again. Raises InvalidArgumentError.
    """
    shards = list(results)
    if not shards:
        raise InvalidArgumentError("results: none (expected 1 or more)")
    outputs, lses = _checked(shards, packed)
    merged, lse = merged_arrays(outputs, lses, packed=packed)
    of_query = like(shards[0].output)
    return dataclasses.replace(
        shards[0],
        **{
            **dict.fromkeys(TENSORS),
            "output": of_query(merged),
            "lse": of_query(lse),
        },
        queue_ns=max(shard.queue_ns for shard in shards),
        compute_ns=max(shard.compute_ns for shard in shards),
    )


def merged_arrays(
    outputs: Sequence[Array], lses: Array, *, packed: bool = False
) -> tuple[Array, Array]:
    """Output and lse of all keys, of outputs and lse in float64 of each shard."""
    # To their softmax a shard is one key, whose score is its lse.
    top = np.max(lses, axis=0)
    if np.isfinite(lses).all():  # as nearly always
        parts = np.exp(lses - top)
        total = parts.sum(axis=0)
        weights = parts / total
        lse = top + np.log(total)
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            # A row without keys has no largest score; what is infinite becomes NaN.
            parts = np.exp(lses - np.where(top == -np.inf, 0, top))
            total = parts.sum(axis=0)
            weights = parts / np.where(total == 0, 1, total)
            lse = top + np.log(total)
        lse[total == 0] = -np.inf
    if packed:
        weights = weights.swapaxes(1, 2)
    merged = _weighted(outputs, weights[..., np.newaxis])
    return merged.astype(outputs[0].dtype), lse.astype(np.float32)


def _weighted(outputs: Sequence[Array], weights: Array) -> Array:
    """Their sum, in float64 as the weights are."""
    if weights.all():
        merged: Array = outputs[0] * weights[0]
        for weight, output in zip(weights[1:], outputs[1:], strict=True):
            merged += output * weight
        return merged
    merged = np.zeros(outputs[0].shape)
    with np.errstate(invalid="ignore"):
        for weight, output in zip(weights, outputs, strict=True):
            # A shard in which no key takes part adds nothing, whatever it holds.
            merged += np.where(weight == 0, 0, output * weight)
    return merged


def _checked(shards: list[Result], packed: bool) -> tuple[list[Array], Array]:
    """Outputs, and lse in float64 with the shards as its first extent."""
    outputs, lses = [], []
    for number, shard in enumerate(shards):
        if shard.lse is None:
            raise InvalidArgumentError(
                f"results[{number}].lse: None (expected results of lse=True)"
            )
        output = to_numpy(shard.output, f"results[{number}].output")
        lse = to_numpy(shard.lse, f"results[{number}].lse")
        outputs.append(output)
        lses.append(lse.astype(np.float64))
        _check(f"results[{number}].output", output, outputs[0].dtype, outputs[0].shape)
        rows = output.shape[:-1]
        _check(
            f"results[{number}].lse", lse, np.float32, rows[::-1] if packed else rows
        )
    if packed and outputs[0].ndim != 3:
        raise InvalidArgumentError(
            f"results[0].output: shape {outputs[0].shape} (expected (T, Hq, Dv))"
        )
    return outputs, np.stack(lses)


def _check(name: str, array: Array, kind: Any, shape: tuple[int, ...]) -> None:
    if array.dtype != kind or array.shape != shape:
        raise InvalidArgumentError(
            f"{name}: {array.dtype} {array.shape} (expected {np.dtype(kind)} {shape})"
        )
