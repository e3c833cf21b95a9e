"""Engine.attend(out=...): the output goes where the caller says."""

import numpy as np
import pytest

from attention_client import InvalidArgumentError

B, HQ, HKV, LQ, LK, D = 2, 4, 2, 5, 7, 8
SMALL = [np.ones((3, 4), np.float32)] * 3


@pytest.fixture
def tensors(normal):
    return normal(B, HQ, LQ, D), normal(B, HKV, LK, D), normal(B, HKV, LK, D)


def test_the_output_goes_where_the_caller_says(engine, tensors):
    expected = engine.attend(*tensors, lse=True).output
    out = np.full((B, HQ, LQ, D), np.nan, np.float32)
    result = engine.attend(*tensors, out=out, lse=True)
    assert result.output is out and result.lse.shape == (B, HQ, LQ)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_the_output_may_have_strides(engine, normal, rank):
    x = normal(2, 5, 3, 8)[(0,) * (4 - rank)]
    expected = engine.attend(x, x, x).output
    whole = np.full((*x.shape[:-2], 6, 16), np.nan, np.float32)
    out = whole[..., ::2, 4:12]
    engine.attend(x, x, x, out=out)
    np.testing.assert_array_equal(out, expected)
    assert np.isnan(whole).sum() == whole.size - out.size


def test_the_output_may_be_heads_last(engine, tensors):
    expected = engine.attend(*tensors).output
    out = np.empty((B, LQ, HQ, D), np.float32).swapaxes(1, 2)
    engine.attend(*tensors, out=out)
    np.testing.assert_array_equal(out, expected)


def test_a_packed_batchs_output_goes_where_the_caller_says(engine, normal):
    x = normal(7, 2, 4)
    starts = {"query_starts": [0, 3, 7], "key_starts": [0, 3, 7]}
    out = np.empty_like(x)
    engine.attend(x, x, x, **starts, out=out)
    np.testing.assert_array_equal(out, engine.attend(x, x, x, **starts).output)


def _read_only():
    out = np.empty((3, 4), np.float32)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    "out, said",
    [
        (np.empty((3, 5), np.float32), r"shape \[3, 5\], the output has \[3, 4\]"),
        (np.empty((3, 4), np.float16), "datatype FP16, the output has FP32"),
        (np.empty((3, 4)), "float64"),
        (_read_only(), "cannot be written to"),
        (np.empty((4, 3), np.float32).T, "rows without gaps"),
        ([[0.0] * 4] * 3, "list .expected an array"),
    ],
)
def test_an_output_that_does_not_fit_is_refused(engine, out, said):
    with pytest.raises(InvalidArgumentError, match=said) as caught:
        engine.attend(*SMALL, out=out)
    assert caught.value.field == "out"


def test_rows_that_share_memory_are_refused(engine):
    shared = np.lib.stride_tricks.as_strided(
        np.empty(8, np.float32), (3, 4), (4, 4), writeable=True
    )
    with pytest.raises(InvalidArgumentError, match="share no memory"):
        engine.attend(*SMALL, out=shared)


def test_an_output_beside_what_is_read_will_do_and_one_upon_it_will_not(engine, normal):
    whole = normal(3, 4, 8)  # as a projection to query, key, value and room for more
    query, key, value, room = whole.swapaxes(0, 1)
    expected = engine.attend(query, key, value).output
    with pytest.raises(InvalidArgumentError, match="overlaps value"):
        engine.attend(query, key, value, out=value)
    engine.attend(query, key, value, out=room)
    np.testing.assert_array_equal(room, expected)


def test_an_output_may_lie_between_other_bytes(engine):
    records = np.zeros(3, [("x", "f4", 4), ("mark", "u1")])
    records["mark"] = 7
    engine.attend(*SMALL, out=records["x"])
    np.testing.assert_array_equal(records["x"], np.ones((3, 4)))
    np.testing.assert_array_equal(records["mark"], [7, 7, 7])
