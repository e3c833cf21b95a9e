"""Packed batches: sequences of different lengths without padding."""

import numpy as np
import pytest

from attention_client import InvalidArgumentError

LENGTHS = [(3, 5), (1, 40), (7, 7)]


def packed(rng, heads=2, width=8):
    def rows(count):
        return rng.standard_normal((count, heads, width), dtype=np.float32)

    queries = [rows(q) for q, _ in LENGTHS]
    keys = [rows(k) for _, k in LENGTHS]
    values = [rows(k) for _, k in LENGTHS]
    return queries, keys, values


def starts(column):
    return np.cumsum([0, *(lengths[column] for lengths in LENGTHS)])


def test_each_entry_has_the_bits_that_it_has_alone(computing):
    queries, keys, values = packed(np.random.default_rng(1))
    together = computing.attend(
        np.concatenate(queries),
        np.concatenate(keys),
        np.concatenate(values),
        query_starts=starts(0),
        key_starts=starts(1),
        causal="bottom_right",
        lse=True,
    )
    first = 0
    for query, key, value in zip(queries, keys, values, strict=True):
        alone = computing.attend(
            *(rows.swapaxes(0, 1)[None] for rows in (query, key, value)),
            causal="bottom_right",
            lse=True,
        )
        last = first + len(query)
        np.testing.assert_array_equal(
            together.output[first:last], alone.output[0].swapaxes(0, 1)
        )
        np.testing.assert_array_equal(together.lse[:, first:last], alone.lse[0])
        first = last


def test_starts_that_fall_are_refused_by_the_entry(computing):
    queries, keys, values = packed(np.random.default_rng(1))
    with pytest.raises(InvalidArgumentError, match=r"query_starts: element \[2\] is 1"):
        computing.attend(
            np.concatenate(queries),
            np.concatenate(keys),
            np.concatenate(values),
            query_starts=[0, 3, 1, 11],
            key_starts=starts(1),
        )
