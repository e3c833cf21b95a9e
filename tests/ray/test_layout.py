"""Where the ranges of a sequence go, of the map alone: no server takes part."""

import pytest
from sharded.layout import balance, layout


@pytest.mark.parametrize("nodes", [2, 4, 8])
@pytest.mark.parametrize("keys", [1_000_000, 1_300_000, 1_900_000])
@pytest.mark.parametrize("rows", [4096, 100_000])
def test_a_sequence_that_grows_has_about_as_many_keys_at_each_node(nodes, keys, rows):
    held = layout(nodes, keys, rows)
    assert sum(map(sum, held)) == keys
    assert balance(held) > 0.9


def test_a_sequence_that_grows_has_few_ranges():
    assert max(map(len, layout(8, 1_000_000))) <= 20


def test_one_node_has_nothing_to_balance():
    assert max(map(len, layout(1, 1_000_000))) <= 8
