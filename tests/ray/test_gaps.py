"""Keys over four servers have no gap: what would leave one is refused."""

import pytest
from waiting import wait_for_nodes

from attention_client import InvalidArgumentError, OutOfRangeError
from attention_client.ray import moving

HEADS, WIDTH = 2, 16


@pytest.mark.parametrize("is_step", [False, True])
def test_no_append_leaves_a_gap_before_it(cluster, normal, is_step):
    wait_for_nodes(cluster, 4)
    keys = normal(HEADS, 64, WIDTH)

    def append(sequence, position=None, count=1):
        rows = keys[:, :count]
        if is_step:
            sequence.attend(rows, append=(rows, rows), position=position)
        else:
            sequence.append(rows, rows, position=position)

    with cluster.sequence(heads=HEADS, width=WIDTH, range_keys=64) as sequence:
        ranges = sequence.describe().ranges
        for position in (65, 128, 1 << 40):
            with pytest.raises(OutOfRangeError, match="leaves a gap"):
                append(sequence, position)
        for position, count in ((1, 1), (64, 1), (40, 64)):
            with pytest.raises(OutOfRangeError, match="leaves a gap"):
                append(sequence, position, count)
        assert sequence.describe().ranges == ranges
        sequence.append(keys, keys)
        cluster.open_sequence(sequence.name).truncate(10)
        # This one has not heard of it, and begins the next range.
        with pytest.raises(OutOfRangeError, match="no key at 63"):
            append(sequence)
        assert sequence.describe().lengths == (10,)
        append(sequence)
        assert sequence.lengths == (11,)


def test_no_append_by_an_old_map_leaves_a_gap_before_it(cluster, normal):
    wait_for_nodes(cluster, 4)
    keys = normal(HEADS, 70, WIDTH)
    with cluster.sequence(heads=HEADS, width=WIDTH, range_keys=64) as sequence:
        old = cluster.open_sequence(sequence.name)
        sequence.append(keys, keys)
        before = sequence.describe()
        with pytest.raises(OutOfRangeError, match="no key at 99"):
            old.append(keys, keys, position=100)
        assert sequence.describe() == before


def test_a_mark_behind_keys_that_move_is_no_key(cluster, normal):
    wait_for_nodes(cluster, 4)
    form = {"heads": HEADS, "width": WIDTH, "layers": 2}
    with cluster.sequence(**form, range_keys=64) as sequence:
        for layer, count in enumerate((100, 56)):
            keys = normal(HEADS, count, WIDTH)
            sequence.append(keys, keys, layer=layer)
        known = sequence._map
        first = known.ranges[0]
        (replica,) = first.replicas
        moving.close([(cluster._client(replica.node, 60), replica)], known, first)
        with pytest.raises(OutOfRangeError, match="no key at 63"):
            sequence.append(keys, keys, layer=1, position=64)


@pytest.mark.parametrize("count", [60, 64])
def test_keys_that_another_has_cut_off_are_missed(cluster, normal, count):
    wait_for_nodes(cluster, 4)
    rows = normal(HEADS, count, WIDTH), normal(HEADS, count, WIDTH)
    with cluster.sequence(heads=HEADS, width=WIDTH, range_keys=64) as sequence:
        sequence.append(*rows)
        cluster.open_sequence(sequence.name).truncate(10)
        with pytest.raises(InvalidArgumentError, match="valid_lens"):
            sequence.attend(normal(4, 1, WIDTH))
        assert sequence.describe().lengths == (10,)
        sequence.attend(normal(4, 1, WIDTH))
