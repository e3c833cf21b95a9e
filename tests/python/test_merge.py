"""Results of shards, merged."""

import itertools
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from attention_client import Client, InvalidArgumentError, LocalServer, Result, merge

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "python" / "shards.py"


def shard(output, lse, **facts):
    """A result of (Lq, Dv)."""
    arrays = dict.fromkeys(
        ("weights", "top_k_indices", "top_k_weights", "key_weights", "scores")
    )
    facts = dict(id="", backend="cpu", kernel="", queue_ns=0, compute_ns=0) | facts
    lse = None if lse is None else np.asarray(lse, np.float32)
    return Result(output=np.asarray(output, np.float32), lse=lse, **arrays, **facts)


@pytest.mark.parametrize("kind", ["f4", "f2", ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "cuts", [[0, 50], [0, 10, 50], [0, 1, 2, 49, 50], [0, 0, 25, 50]]
)
def test_shards_give_the_result_of_all_keys(client, normal, kind, cuts):
    query, key, value = (
        normal(2, 4, *shape).astype(kind) for shape in ((5, 8), (50, 8), (50, 6))
    )
    options = dict(causal=True, query_offset=7, lse=True)
    parts = [
        client.attend(
            query,
            key[:, :, start:end],
            value[:, :, start:end],
            key_offset=start,
            **options,
        )
        for start, end in itertools.pairwise(cuts)
    ]
    merged, whole = merge(parts), client.attend(query, key, value, **options)
    assert merged.output.dtype == whole.output.dtype
    tolerance = 1e-5 if kind == "f4" else 2e-2
    np.testing.assert_allclose(
        merged.output.astype("f4"), whole.output.astype("f4"), atol=tolerance
    )
    np.testing.assert_allclose(merged.lse, whole.lse, atol=1e-5)
    again = merge([merge(parts[:1]), *parts[1:]])
    np.testing.assert_allclose(
        again.output.astype("f4"), whole.output.astype("f4"), atol=tolerance
    )


def test_a_sink_is_given_to_one_shard(client, normal):
    query, key, value = normal(1, 2, 3, 4), normal(1, 2, 8, 4), normal(1, 2, 8, 4)
    sinks = np.array([0.5, -1], np.float32)
    halves = [(key[:, :, at], value[:, :, at]) for at in (slice(0, 3), slice(3, 8))]
    merged = merge(
        [
            client.attend(query, *halves[0], sinks=sinks, lse=True),
            client.attend(query, *halves[1], lse=True),
        ]
    )
    whole = client.attend(query, key, value, sinks=sinks, lse=True)
    np.testing.assert_allclose(merged.output, whole.output, atol=1e-6)
    np.testing.assert_allclose(merged.lse, whole.lse, atol=1e-6)


def test_packed_results_are_merged(client, normal):
    # As many heads as tokens: shapes alone do not tell the extents apart.
    query, key, value = normal(4, 4, 8), normal(6, 4, 8), normal(6, 4, 8)

    def attend(starts, rows):
        return client.attend(
            query,
            key[rows],
            value[rows],
            query_starts=[0, 1, 4],
            key_starts=starts,
            lse=True,
        )

    whole = attend([0, 2, 6], slice(None))
    parts = attend([0, 1, 3], [0, 2, 3]), attend([0, 1, 3], [1, 4, 5])
    merged = merge(parts, packed=True)
    np.testing.assert_allclose(merged.output, whole.output, atol=1e-6)
    np.testing.assert_allclose(merged.lse, whole.lse, atol=1e-6)


def test_rows_without_keys_add_nothing_and_stay_empty():
    first = shard([[np.nan], [0]], [-np.inf, -np.inf])
    merged = merge([first, shard([[2], [0]], [500, -np.inf])])
    np.testing.assert_array_equal(merged.output, [[2], [0]])
    np.testing.assert_array_equal(merged.lse, [500, -np.inf])


def test_nan_stays_in_its_row():
    merged = merge([shard([[np.nan], [1]], [np.nan, 0]), shard([[2], [3]], [0, 0])])
    np.testing.assert_array_equal(merged.output, [[np.nan], [2]])


def test_the_slowest_shard_gives_the_times():
    parts = [shard([[1]], [0], compute_ns=n, queue_ns=9 - n, id="a") for n in (3, 5)]
    merged = merge(parts)
    assert (merged.compute_ns, merged.queue_ns, merged.id) == (5, 6, "a")


@pytest.mark.parametrize(
    "parts, options, said",
    [
        ([], {}, "results: none"),
        ([shard([[1]], [0]), shard([[1]], None)], {}, r"results\[1\].lse: None"),
        (
            [shard([[1]], [0]), shard([[1, 2]], [0])],
            {},
            r"results\[1\].output: float32 \(1, 2\) \(expected float32 \(1, 1\)\)",
        ),
        ([shard([[1]], [0, 0])], {}, r"results\[0\].lse: float32 \(2,\)"),
        ([shard([[1]], [0])], {"packed": True}, r"expected \(T, Hq, Dv\)"),
    ],
)
def test_what_cannot_be_merged_is_named(parts, options, said):
    with pytest.raises(InvalidArgumentError, match=said):
        merge(parts, **options)


def test_the_example_of_two_servers_works(server):
    with LocalServer() as other, Client(other.target) as client:
        said = subprocess.run(
            [sys.executable, EXAMPLE, server.target, other.target],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert said.startswith("output (1, 8, 4, 64), off by ")
        assert client.health() == "SERVING"
