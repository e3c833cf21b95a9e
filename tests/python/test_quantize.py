"""Keys and values of other types than queries."""

import ml_dtypes
import numpy as np
import pytest

from attention_client import Client, InvalidArgumentError, quantize

FLOAT8 = ml_dtypes.float8_e4m3fn
LARGEST = {"int8": 127, "float8_e4m3fn": 448}


def widened(elements, scales):
    return elements.astype(np.float32) * scales[..., np.newaxis]


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_elements_times_scales_are_the_numbers(dtype, normal):
    rows = normal(2, 3, 50, 16) * np.float32(10) ** normal(2, 3, 50, 1)
    elements, scales = quantize(rows, dtype)
    assert elements.dtype.name == dtype
    assert scales.dtype == np.float32
    assert scales.shape == rows.shape[:-1]
    np.testing.assert_allclose(
        scales, np.abs(rows).max(axis=-1) / LARGEST[dtype], rtol=1e-6
    )
    by = scales[..., np.newaxis]
    most = by / 2 if dtype == "int8" else np.abs(rows) / 16 + by / 1024
    assert (np.abs(widened(elements, scales) - rows) <= most * 1.000001).all()


@pytest.mark.parametrize(
    "dtype", [np.int8, np.dtype("int8"), "int8", FLOAT8, np.dtype(FLOAT8)]
)
def test_dtypes_are_those_of_numpy_and_ml_dtypes(dtype):
    assert quantize([[1.0, 2.0]], dtype)[0].dtype == np.dtype(dtype)


def test_another_dtype_is_refused():
    with pytest.raises(InvalidArgumentError, match="dtype: int16"):
        quantize([[1.0]], "int16")


def test_ties_are_rounded_to_even():
    elements, scales = quantize([[127, 0.5, 1.5, -2.5, 3.5]])
    assert scales == [1]
    np.testing.assert_array_equal(elements, [[127, 0, 2, -2, 4]])
    elements, scales = quantize([[448, 17, 19, -21, 2**-10, 3 * 2**-10]], FLOAT8)
    assert scales == [1]
    expected = [[448, 16, 20, -20, 0, 2**-8]]
    np.testing.assert_array_equal(elements.astype(np.float64), expected)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_rows_of_zeros_and_of_the_least_numbers(dtype):
    rows = np.zeros((3, 4), np.float32)
    rows[1] = [1e-45, -1e-45, 0, 0]  # a scale of 0
    rows[2] = [1e-40, -3e-41, 0, 0]  # one that is rounded much
    elements, scales = quantize(rows, dtype)
    assert (scales[:2] == 0).all()
    assert np.isfinite(elements.astype(np.float32)).all()
    np.testing.assert_allclose(widened(elements, scales)[2], rows[2], rtol=0.2)
    assert quantize(np.zeros((2, 0)), dtype)[1].tolist() == [0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
def test_a_row_that_is_not_finite_is_named(bad):
    rows = np.ones((2, 3, 4))
    rows[1, 2, 0] = bad
    with pytest.raises(InvalidArgumentError, match=r"array: row \[1, 2\] holds NaN"):
        quantize(rows)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize("query_type", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("queries", [1, 30])
def test_attending_them_is_attending_what_they_stand_for(
    computing, normal, dtype, query_type, queries
):
    query = normal(2, 4, queries, 16).astype(query_type)
    key, key_scale = quantize(normal(2, 2, 40, 16), dtype)
    value, value_scale = quantize(normal(2, 2, 40, 8), dtype)
    result = computing.attend(
        query, key, value, key_scale=key_scale, value_scale=value_scale
    )
    expected = computing.attend(
        query.astype(np.float32), widened(key, key_scale), widened(value, value_scale)
    )
    assert result.output.dtype == query.dtype
    loss = {np.float32: 1e-5, np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}[query_type]
    np.testing.assert_allclose(
        result.output.astype(np.float32), expected.output, atol=loss, rtol=loss
    )


def test_they_go_through_shared_memory(server, normal):
    query = normal(1, 2, 64, 64)
    key, key_scale = quantize(normal(1, 2, 4096, 64), FLOAT8)
    value, value_scale = quantize(normal(1, 2, 4096, 64), FLOAT8)
    options = {"key_scale": key_scale, "value_scale": value_scale}
    outputs = []
    for shared in (True, False):
        with Client(server.target, shared_memory=shared) as client:
            outputs.append(client.attend(query, key, value, **options).output)
    np.testing.assert_array_equal(*outputs)


def test_floats_of_another_type_need_no_scale(computing, normal):
    query, key, value = normal(3, 8), normal(5, 8), normal(5, 4)
    half = [array.astype(np.float16) for array in (key, value)]
    result = computing.attend(query, *half)
    expected = computing.attend(query, *(array.astype(np.float32) for array in half))
    assert result.output.dtype == np.float32
    np.testing.assert_allclose(result.output, expected.output, rtol=1e-5, atol=1e-6)


def test_a_packed_batch_has_a_scale_for_each_token_and_head(computing, normal):
    query = normal(4, 2, 8)
    key, key_scale = quantize(normal(7, 2, 8))
    value, value_scale = quantize(normal(7, 2, 8))
    assert key_scale.shape == (7, 2)
    packed = computing.attend(
        query,
        key,
        value,
        key_scale=key_scale,
        value_scale=value_scale,
        query_starts=[0, 1, 4],
        key_starts=[0, 3, 7],
    )
    second = computing.attend(
        query[1:].swapaxes(0, 1)[None],
        key[3:].swapaxes(0, 1)[None],
        value[3:].swapaxes(0, 1)[None],
        key_scale=key_scale[3:].T[None],
        value_scale=value_scale[3:].T[None],
    )
    np.testing.assert_array_equal(packed.output[1:], second.output[0].swapaxes(0, 1))


def test_scales_that_are_missing_or_wrong_are_named(computing, normal):
    query = normal(3, 8)
    key, key_scale = quantize(normal(5, 8))
    value, _ = quantize(normal(5, 8))
    with pytest.raises(InvalidArgumentError, match="value_scale: missing") as caught:
        computing.attend(query, key, value, key_scale=key_scale)
    assert caught.value.field == "value_scale"
    with pytest.raises(InvalidArgumentError, match="key_scale: -1 for row 2"):
        wrong = key_scale.copy()
        wrong[2] = -1
        computing.attend(query, key, value, key_scale=wrong, value_scale=key_scale)
