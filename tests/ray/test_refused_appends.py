"""Appends that are refused: the sequence has the ranges that it had."""

import pytest
import ray
from checked import HEADS, WIDTH

from attention_client import AbortedError, ResourceExhaustedError
from attention_client.ray import AttentionCluster

MOST = 256  # keys that a server takes at once


@pytest.fixture(scope="module")
def narrow(ray_cluster):
    flags = {"worker_threads": 1, "max_dimension": MOST}
    with AttentionCluster(2, name="narrow", cpus=0, flags=flags) as made:
        yield made


@pytest.fixture
def sequence(narrow):
    with narrow.sequence(heads=HEADS, width=WIDTH, range_keys=64, replicas=2) as made:
        yield made


@pytest.fixture
def rows(normal):
    return lambda count: (normal(HEADS, count, WIDTH), normal(HEADS, count, WIDTH))


def told(sequence):
    known = sequence.describe()
    return known.lengths, known.ranges


@pytest.mark.parametrize("held", [40, 64])
def test_an_append_that_is_too_large_adds_no_range(sequence, rows, held):
    sequence.append(*rows(held))
    _, ranges = told(sequence)
    with pytest.raises(ResourceExhaustedError):
        sequence.append(*rows(64 - held + 3 * MOST))
    # The range that was there has taken its part.
    assert told(sequence) == ((64,), ranges)
    assert sequence.append(*rows(MOST)) == 64 + MOST


def test_an_append_where_other_keys_are_adds_no_range(sequence, rows):
    sequence.append(*rows(40))
    before = told(sequence)
    with pytest.raises(AbortedError):
        sequence.append(*rows(80), position=0)
    assert told(sequence) == before


def test_a_range_that_has_keys_by_the_time_it_is_closed_stays(narrow, sequence, rows):
    sequence.append(*rows(100))
    lengths, ranges = told(sequence)

    def retract(of, name):
        placement = of._placement
        placement.held = lambda part: [(0,)] * len(part.replicas)  # a moment ago
        try:
            of.retract(name, 64)
        finally:
            del placement.held

    asked = narrow._map.__ray_call__.remote(retract, sequence.name)
    ray.get(asked, timeout=60)
    after = told(sequence)
    assert after[0] == lengths
    assert [part.start for part in after[1]] == [part.start for part in ranges]
    assert sequence.append(*rows(1)) == 101
