"""Sequences over four servers: what one server answers, they answer."""

import ml_dtypes
import pytest
from compared import HEADS, KEYS, WIDTH, assert_same

from attention_client import (
    AbortedError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    quantize,
)

OPTIONS = {
    "none": {},
    "causal": {"causal": True, "query_offset": 700},
    "bottom_right": {"causal": "bottom_right"},
    "window": {"causal": "bottom_right", "window": (100, 0)},
    "both sides": {"window": (70, 30), "query_offset": 500},
    "offsets": {"causal": True, "query_offsets": [300], "key_offset": 20},
    "no key": {"window": (3, 3), "query_offset": 5000},
    "lengths": {"valid_lens": [300]},
    "lengths of rows": {"valid_lens": [[1, 0, 64, 65, 999]]},
    "softcap": {"softcap": 1.5, "scale": 0.3},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_answers_are_those_of_one_server(both, normal, options):
    sharded, whole = both
    query = normal(4, 5, WIDTH)
    answer = sharded.attend(query, lse=True, **options)
    assert_same(answer, whole.attend(query, lse=True, **options))


@pytest.mark.parametrize("name", ["sinks", "alibi_slopes", "bias", "attend_mask"])
def test_tensors_go_to_where_they_belong(both, normal, name):
    sharded, whole = both
    shape = (4,) if name in ("sinks", "alibi_slopes") else (4, 5, KEYS)
    tensor = normal(*shape) > 0 if name == "attend_mask" else abs(normal(*shape))
    options = {name: tensor, "causal": "bottom_right", "lse": True}
    query = normal(4, 5, WIDTH)
    assert_same(sharded.attend(query, **options), whole.attend(query, **options))


def test_sinks_count_once_where_no_key_is_seen(both, normal):
    sharded, whole = both
    options = {"sinks": normal(4), "valid_lens": [0], "lse": True}
    query = normal(4, 1, WIDTH)
    assert_same(sharded.attend(query, **options), whole.attend(query, **options))


def test_only_servers_whose_keys_are_seen_are_asked(both, normal):
    sharded, _ = both
    query = normal(4, 1, WIDTH)
    assert sharded.attend(query).servers == 4
    assert sharded.attend(query, causal=True, query_offset=60).servers == 1
    assert sharded.attend(query, causal="bottom_right", window=(5, 0)).servers == 1


def test_steps_of_a_decoder_cross_ranges(both, normal):
    sharded, whole = both
    for count in (1, 1, 300, 1, 64):
        rows = normal(HEADS, count, WIDTH), normal(HEADS, count, WIDTH)
        query = normal(4, count, WIDTH)
        options = {"append": rows, "causal": "bottom_right", "lse": True}
        assert_same(sharded.attend(query, **options), whole.attend(query, **options))
    assert sharded.lengths == whole.lengths == (KEYS + 367,)
    assert sharded.describe().lengths == whole.lengths


def test_layers_have_keys_of_their_own(cluster, one_server, normal):
    form = {"heads": HEADS, "width": WIDTH, "layers": 2}
    with (
        cluster.sequence(**form, range_keys=64) as sharded,
        one_server.sequence(**form) as whole,
    ):
        for layer, count in ((0, 200), (1, 70), (1, 30)):
            rows = normal(HEADS, count, WIDTH), normal(HEADS, count, WIDTH)
            assert sharded.append(*rows, layer) == whole.append(*rows, layer)
            query = normal(4, 2, WIDTH)
            answer = sharded.attend(query, layer, lse=True)
            assert_same(answer, whole.attend(query, layer, lse=True))
        assert sharded.describe().lengths == (200, 100)
        assert len(sharded) == 100


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float8_e4m3fn"])
def test_small_keys_keep_their_bits_where_they_move(cluster, one_server, normal, dtype):
    rows = normal(HEADS, 300, WIDTH), normal(HEADS, 300, WIDTH)
    if dtype != "bfloat16":
        rows = tuple(quantize(part, dtype) for part in rows)
    form = {"heads": HEADS, "width": WIDTH, "dtype": dtype}
    query = normal(4, 1, WIDTH)
    with (
        cluster.sequence(**form, range_keys=64) as sharded,
        one_server.sequence(**form) as whole,
    ):
        sharded.append(*rows)
        whole.append(*rows)
        expected = whole.attend(query, lse=True)
        assert_same(sharded.attend(query, lse=True), expected)
        fewest = min(cluster.nodes(), key=lambda node: node.held_bytes)
        cluster.drain(fewest.node)
        assert_same(sharded.attend(query, lse=True), expected)
        cluster.add_nodes(1)
        assert_same(sharded.attend(query, lse=True), expected)


def test_the_querys_datatype_is_the_outputs(both, normal):
    sharded, _ = both
    query = normal(4, 1, WIDTH).astype(ml_dtypes.bfloat16)
    answer = sharded.attend(query)
    assert answer.output.dtype == ml_dtypes.bfloat16
    assert answer.lse is None


def test_a_fork_goes_its_own_way(both, normal):
    sharded, whole = both
    rows = normal(HEADS, 3, WIDTH), normal(HEADS, 3, WIDTH)
    query = normal(4, 1, WIDTH)
    with sharded.fork() as fork, sharded.fork(length=500) as short:
        fork.append(*rows)
        assert (len(sharded), len(fork), len(short)) == (KEYS, KEYS + 3, 500)
        assert_same(sharded.attend(query, lse=True), whole.attend(query, lse=True))
        answer = short.attend(query, lse=True)
        assert_same(answer, whole.attend(query, valid_lens=[500], lse=True))
        short.append(*rows)
        whole.append(*rows)
        answer = fork.attend(query, lse=True)
    assert_same(answer, whole.attend(query, lse=True))


def test_truncate_keeps_the_first_keys(both, normal):
    sharded, whole = both
    query = normal(4, 1, WIDTH)
    for one in both:
        one.truncate(400)
    rows = normal(HEADS, 5, WIDTH), normal(HEADS, 5, WIDTH)
    for one in both:
        assert one.append(*rows) == 405
    assert_same(sharded.attend(query, lse=True), whole.attend(query, lse=True))
    with pytest.raises(OutOfRangeError, match="expected 0 to 405"):
        sharded.truncate(406)


def test_a_length_is_an_integer(both):
    for one in both:
        with pytest.raises(InvalidArgumentError, match=r"length: 64\.0"):
            one.truncate(64.0)
        with pytest.raises(InvalidArgumentError, match=r"length: 64\.0"):
            one.fork(length=64.0)
        assert one.lengths == (KEYS,)


def test_appends_can_be_repeated_and_not_replaced(both, normal):
    sharded, _ = both
    rows = normal(HEADS, 3, WIDTH), normal(HEADS, 3, WIDTH)
    assert sharded.append(*rows) == KEYS + 3
    assert sharded.append(*rows, position=KEYS) == KEYS + 3
    with pytest.raises(AbortedError):
        sharded.append(rows[0] + 1, rows[1], position=KEYS)


@pytest.mark.parametrize("count", [3, 90])  # in one range, and in several
def test_a_step_that_is_repeated_sees_what_it_saw(both, normal, count):
    sharded, whole = both
    first, keys = KEYS - 100, normal(HEADS, 93, WIDTH)
    for one in both:
        one.truncate(first)
        one.append(keys, keys)
    again = keys[:, :count]
    options = {"append": (again, again), "position": first, "lse": True}
    query = normal(4, 2, WIDTH)
    for causal in ("none", "bottom_right"):
        answer = sharded.attend(query, causal=causal, **options)
        assert_same(answer, whole.attend(query, causal=causal, **options))
    assert sharded.lengths == whole.lengths == (first + 93,)


@pytest.mark.parametrize("position", [-1, -5])
def test_a_negative_position_is_refused_as_by_one_server(both, normal, position):
    rows = normal(HEADS, 8, WIDTH), normal(HEADS, 8, WIDTH)
    expected = rf"position: {position} \(expected:? 0 or more\)"
    for one in both:
        with pytest.raises(InvalidArgumentError, match=expected):
            one.append(*rows, position=position)
        with pytest.raises(InvalidArgumentError, match=expected):
            one.attend(normal(4, 8, WIDTH), append=rows, position=position)
        assert one.lengths == one.describe().lengths == (KEYS,)


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize("is_step", [False, True])
@pytest.mark.parametrize("name", ["bias", "attend_mask"])
def test_a_mask_is_of_the_keys_that_this_one_knows(
    cluster, both, normal, name, is_step
):
    sharded, whole = both
    row = normal(HEADS, 1, WIDTH), normal(HEADS, 1, WIDTH)
    options = {"append": row} if is_step else {}
    other = cluster.open_sequence(sharded.name)
    other.append(*row)  # a step appends the same
    other.append(normal(HEADS, 2, WIDTH), normal(HEADS, 2, WIDTH))
    shape = (4, 5, KEYS + is_step)
    tensor = normal(*shape) > 0 if name == "attend_mask" else normal(*shape)
    query = normal(4, 5, WIDTH)
    answer = sharded.attend(query, lse=True, **options, **{name: tensor})
    assert_same(answer, whole.attend(query, lse=True, **options, **{name: tensor}))


def test_a_checkpoint_becomes_a_sequence(cluster, both, normal, tmp_path):
    sharded, whole = both
    assert sharded.export(str(tmp_path)) > KEYS * HEADS * WIDTH * 8
    query = normal(4, 3, WIDTH)
    with cluster.import_sequence(str(tmp_path), replicas=2) as read:
        assert read.lengths == (KEYS,)
        assert_same(read.attend(query, lse=True), whole.attend(query, lse=True))
        rows = normal(HEADS, 3, WIDTH), normal(HEADS, 3, WIDTH)
        assert read.append(*rows) == KEYS + 3
    with pytest.raises(NotFoundError):
        cluster.import_sequence(str(tmp_path / "none"))
