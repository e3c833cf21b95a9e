"""Servers that ask each other: what one server answers, they answer."""

import ml_dtypes
import numpy as np
import pytest
from counted import Servers
from many_servers import LOOPBACK
from tree_requests import HEADS, KEYS, SERVERS, SIZE, WIDTH

from attention_client.ray import tree


@pytest.fixture
def whole(one_server):
    with one_server.sequence(heads=HEADS, width=WIDTH) as made:
        random = np.random.default_rng(seed=1)
        rows = [random.normal(size=(HEADS, KEYS, WIDTH)) for _ in range(2)]
        made.append(*(array.astype(np.float32) for array in rows))
        yield made


def assert_same(answer, expected):
    np.testing.assert_allclose(answer.output, expected.output, rtol=0, atol=1e-6)
    np.testing.assert_allclose(answer.lse, expected.lse, rtol=1e-6, atol=1e-6)


OPTIONS = {
    "none": {},
    "causal": {"causal": True, "query_offset": KEYS - 70},
    "window": {"causal": "bottom_right", "window": (KEYS - 10, 0)},
    "lengths": {"valid_lens": [KEYS - 30]},
    "lengths of rows": {"valid_lens": [[1, KEYS, 64, 65, 0]]},
    "softcap": {"softcap": 1.5, "scale": 0.3},
    "sinks": {"sinks": np.array([1, -1, 2, 0.5], np.float32)},
    "mask": {"attend_mask": np.arange(KEYS) % 3 > 0},
    "bias": {"bias": np.sin(np.arange(KEYS)).astype(np.float32)},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_answers_are_those_of_one_server(servers, sharded, whole, normal, options):
    query = normal(4, 5, WIDTH)
    answer = sharded.attend(query, lse=True, **options)
    assert_same(answer, whole.attend(query, lse=True, **options))
    assert answer.servers > tree.MOST_ASKED
    few = len(tree.groups(range(answer.servers)))
    assert servers.trees() == servers.asked() == few


def test_of_several_ranges_at_each_server(servers, one_server, normal):
    keys = 2 * KEYS - 30
    rows = normal(HEADS, keys, WIDTH), normal(HEADS, keys, WIDTH)
    sharded = servers.sequence(HEADS, WIDTH, SIZE, ranges=2 * SERVERS)
    sharded.append(*rows)
    query = normal(4, 3, WIDTH)
    options = {"lse": True, "sinks": normal(4), "attend_mask": np.arange(keys) % 5 > 0}
    with one_server.sequence(heads=HEADS, width=WIDTH) as whole:
        whole.append(*rows)
        expected = whole.attend(query, **options)
    servers.forget()
    assert_same(sharded.attend(query, **options), expected)
    assert servers.asked() == len(tree.groups(range(SERVERS)))


def test_answers_that_a_worker_merges(servers, sharded, whole, normal):
    query = normal(4, 600, WIDTH)  # 12 answers of 150 KiB
    answer = sharded.attend(query, lse=True)
    assert_same(answer, whole.attend(query, lse=True))


def test_a_step_appends_at_the_tail_and_asks_the_others_in_a_tree(
    servers, one_server, normal
):
    keys = KEYS - 20
    rows = normal(HEADS, keys, WIDTH), normal(HEADS, keys, WIDTH)
    sharded = servers.sequence(HEADS, WIDTH, SIZE)
    sharded.append(*rows)
    with one_server.sequence(heads=HEADS, width=WIDTH) as whole:
        whole.append(*rows)
        for _ in range(3):
            new = normal(HEADS, 1, WIDTH), normal(HEADS, 1, WIDTH)
            step = {"append": new, "causal": "bottom_right", "lse": True}
            query = normal(4, 1, WIDTH)
            servers.forget()
            assert_same(sharded.attend(query, **step), whole.attend(query, **step))
            assert servers.asked() == servers.trees() + 1


def test_bfloat16_within_a_rounding_of_each_level(servers, one_server, normal):
    rows = [normal(HEADS, KEYS, WIDTH).astype(ml_dtypes.bfloat16) for _ in range(2)]
    sharded = servers.sequence(HEADS, WIDTH, SIZE, dtype="bfloat16")
    sharded.append(*rows)
    query = normal(4, 3, WIDTH).astype(ml_dtypes.bfloat16)
    with one_server.sequence(heads=HEADS, width=WIDTH, dtype="bfloat16") as whole:
        whole.append(*rows)
        expected = whole.attend(query).output.astype(np.float32)
    answer = sharded.attend(query).output
    assert answer.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(answer.astype(np.float32), expected, rtol=0, atol=0.01)


def test_few_servers_are_asked_by_the_client(one_server, normal):
    with Servers(3, **LOOPBACK) as few:
        sharded = few.sequence(HEADS, WIDTH, SIZE)
        sharded.append(normal(HEADS, 192, WIDTH), normal(HEADS, 192, WIDTH))
        few.forget()
        sharded.attend(normal(4, 1, WIDTH))
        assert few.trees() == 0
        assert few.asked() == 3


@pytest.mark.parametrize("count", [9, 16, 64, 300])
def test_trees_have_all_servers_and_no_more_than_one_may_ask(count):
    made = tree.groups(range(count))
    assert sorted(one for group in made for one in group) == list(range(count))
    assert max(map(len, made)) <= 65
