"""Ranges go where there is room for them, and not only where there are few keys."""

import pytest
from full import FORM, fill, no_reports

from attention_client import ResourceExhaustedError
from attention_client.ray import AttentionCluster
from attention_client.ray.ranges import Range, Replica, SequenceMap, in_order


@pytest.fixture
def two(ray_cluster):
    """Servers of 4 MiB each, which are room for two ranges less a page."""
    flags = {"worker_threads": 1, "resident_memory_limit": 4 << 20}
    with AttentionCluster(2, name="two", cpus=0, flags=flags) as cluster:
        yield cluster


def full_and_other(cluster, normal):
    """A node's name whose server is full, and the other one's."""
    full, other = (one.node for one in cluster.nodes())
    fill(cluster._client(full).sequence(**FORM), normal)
    return full, other


def nodes_of(sequence):
    ranges = sequence.describe().ranges
    return {replica.node for part in ranges for replica in part.replicas}


def test_a_node_with_room_comes_before_one_with_fewer_keys():
    part = Range(0, 64, (Replica("a", ""),))
    known = SequenceMap("", None, 1, 64, 0, (part,))
    assert in_order(known, 64, {"a": 640, "b": 640}) == ["b", "a"]
    assert in_order(known, 64, {"a": 640, "b": 63}) == ["a", "b"]
    assert in_order(known, 128, {"a": 64, "b": 63}) == ["a", "b"]


def test_ranges_go_where_there_is_room(two, normal):
    _, other = full_and_other(two, normal)
    rows = normal(1, 7000, 64), normal(1, 7000, 64)
    with two.sequence(**FORM, range_keys=512) as sequence:
        assert sequence.append(*rows) == 7000
        assert nodes_of(sequence) == {other}


def test_a_range_is_as_long_as_there_is_room(two, normal):
    count = 15000  # of 16384 that both would have room for
    rows = normal(1, count, 64), normal(1, count, 64)
    with two.sequence(**FORM, range_keys=6000) as sequence:
        assert sequence.append(*rows) == count
        query = normal(1, 1, 64)
        assert sequence.attend(query).servers == 2


def test_what_another_sequence_may_still_take_is_set_aside(two, normal):
    first, second = (one.node for one in two.nodes())
    rows = normal(1, 640, 64), normal(1, 640, 64)
    two._client(second).sequence(**FORM).append(*rows)
    with (
        two.sequence(**FORM, range_keys=6000) as one,
        two.sequence(**FORM, range_keys=6000) as other,
    ):
        assert nodes_of(one) == {first}  # which still has most room
        assert nodes_of(other) == {second}


def test_an_append_passes_over_a_node_that_turns_out_to_be_full(two, normal):
    full, other = full_and_other(two, normal)
    client = two._client(full)
    with pytest.raises(ResourceExhaustedError):
        while True:
            client.sequence(**FORM)
    no_reports(two)
    with two.sequence(**FORM, range_keys=512) as sequence:
        rows = normal(1, 2000, 64), normal(1, 2000, 64)
        assert sequence.append(*rows) == 2000
        assert nodes_of(sequence) == {other}


@pytest.mark.parametrize("is_told", [False, True])
def test_an_import_passes_over_a_node_that_is_full(two, normal, tmp_path, is_told):
    rows = normal(1, 2000, 64), normal(1, 2000, 64)
    with two.sequence(**FORM, range_keys=512) as sequence:
        sequence.append(*rows)
        sequence.export(tmp_path)
    _, other = full_and_other(two, normal)
    if not is_told:
        no_reports(two)
    with two.import_sequence(tmp_path) as sequence:
        assert len(sequence) == 2000
        assert nodes_of(sequence) == {other}


def test_where_no_node_has_room_an_append_says_so(two, normal):
    page = normal(1, 64, 64)
    with two.sequence(**FORM, range_keys=512) as sequence:
        with pytest.raises(ResourceExhaustedError, match="no memory"):
            while True:
                sequence.append(page, page)
        assert len(sequence) > 0.95 * 2 * 8192
