"""Attention to keys that stay, on a server and in this process."""

import ml_dtypes
import numpy as np
import pytest
from keys import HEADS, WIDTH, attend_with_keys, joined

from attention_client import InvalidArgumentError, OutOfRangeError, quantize


def test_integers_are_appended_as_the_sequences_datatype(computing, sequence, normal):
    rows, query = np.arange(HEADS * 3 * WIDTH).reshape(HEADS, 3, WIDTH), normal(4, 1, 8)
    assert sequence.append(rows.tolist(), rows) == 3
    wide = rows.astype(np.float32)
    np.testing.assert_array_equal(
        sequence.attend(query).output,
        attend_with_keys(computing, query, (wide, wide)),
    )


def test_answers_are_those_of_keys_that_are_sent(computing, sequence, rows, normal):
    first, second, query = rows(100), rows(3), normal(4, 5, WIDTH)
    assert sequence.append(*first) == 100
    assert sequence.append(*second) == 103
    result = sequence.attend(query, weights=True, lse=True, top_k=2)
    expected = attend_with_keys(computing, query, joined(first, second))
    np.testing.assert_array_equal(result.output, expected)
    assert result.weights.shape == (4, 5, 103)
    assert result.lse.shape == (4, 5)
    assert result.top_k_indices.shape == (4, 5, 2)


@pytest.mark.parametrize("kind", [">f4", ">f2", ">f8"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_the_order_of_bytes_makes_no_difference(computing, rows, normal, dtype, kind):
    key, value = (part.astype(kind) for part in rows(3))
    query = normal(4, 1, WIDTH)
    answers = []
    for order in (">", "<"):
        with computing.sequence(heads=HEADS, width=WIDTH, dtype=dtype) as sequence:
            given = (
                part.astype(part.dtype.newbyteorder(order)) for part in (key, value)
            )
            assert sequence.append(*given) == 3
            answers.append(sequence.attend(query).output)
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_keys_with_scales_stay_with_them(computing, rows, normal, dtype):
    first, step, query = rows(100), rows(3), normal(4, 3, WIDTH)
    with computing.sequence(heads=HEADS, width=WIDTH, dtype=dtype) as sequence:
        # As quantize() gives them, or as numbers that are quantized here.
        assert sequence.append(*(quantize(part, dtype) for part in first)) == 100
        answer = sequence.attend(query, append=step).output
        (key, key_scale), (value, value_scale) = (
            quantize(part, dtype) for part in joined(first, step)
        )
        scales = {"key_scale": key_scale[None], "value_scale": value_scale[None]}
        expected = attend_with_keys(computing, query, (key, value), **scales)
        np.testing.assert_array_equal(answer, expected)
        assert sequence.describe().form.datatype == dtype
        assert sequence.append(*step, position=100) == 103  # the same again


def test_scales_are_where_the_datatype_has_them(computing, sequence, rows):
    key, value = rows(3)
    with computing.sequence(heads=HEADS, width=WIDTH, dtype="int8") as scaled:
        bare, _ = quantize(key)
        with pytest.raises(InvalidArgumentError, match="key_scale: missing"):
            scaled.append(bare, value)
        with pytest.raises(InvalidArgumentError, match=r"value: row .* holds NaN"):
            scaled.append(key, np.full_like(value, np.nan))
        with pytest.raises(InvalidArgumentError, match="key: no pair"):
            scaled.append((key, key, key), value)
        assert len(scaled) == 0


def test_several_sequences_of_int8_append_at_once(computing, rows, normal):
    options = {"heads": HEADS, "width": WIDTH, "dtype": "int8"}
    with computing.sequence(**options) as a, computing.sequence(**options) as b:
        key, value = normal(2, HEADS, 1, WIDTH), normal(2, HEADS, 1, WIDTH)
        query = normal(2, 4, 1, WIDTH)
        both = computing.attend_sequences([a, b], query, append=(key, value)).output
        for n, one in enumerate((a, b)):
            np.testing.assert_array_equal(one.attend(query[n]).output, both[n])


def test_options_are_those_of_attend(computing, sequence, rows, normal):
    kept, query = rows(20), normal(4, 5, WIDTH)
    sequence.append(*kept)
    for options in (
        {"causal": "bottom_right", "window": (3, 0)},
        {"softcap": 0.5, "scale": 2.0},
        {"sinks": normal(4), "alibi_slopes": normal(4), "valid_lens": [7]},
        {"attend_mask": normal(5, 20) > 0, "bias": normal(4, 1, 20)},
        {"causal": True, "query_offset": 15},
    ):
        np.testing.assert_array_equal(
            sequence.attend(query, **options).output,
            attend_with_keys(computing, query, kept, **options),
        )


def test_a_step_of_a_decoder_is_one_call(computing, sequence, rows, normal):
    kept = rows(10)
    sequence.append(*kept)
    for _ in range(3):
        step, query = rows(1), normal(4, 1, WIDTH)
        options = {"causal": "bottom_right"}
        output = sequence.attend(query, append=step, **options).output
        kept = joined(kept, step)
        expected = attend_with_keys(computing, query, kept, **options)
        np.testing.assert_array_equal(output, expected)
    assert sequence.lengths == (13, 0)


def test_layers_have_keys_of_their_own(computing, sequence, rows, normal):
    query, layers = normal(4, 1, WIDTH), [rows(3), rows(5)]
    for layer, kept in enumerate(layers):
        sequence.append(*kept, layer=layer)
    for layer, kept in enumerate(layers):
        np.testing.assert_array_equal(
            sequence.attend(query, layer).output,
            attend_with_keys(computing, query, kept),
        )
    assert sequence.lengths == (3, 5)
    assert len(sequence) == 3


def test_fewer_dimensions_are_one_head(computing, normal):
    key, value, query = normal(9, WIDTH), normal(9, 3), normal(4, WIDTH)
    with computing.sequence(heads=1, width=WIDTH, value_width=3) as sequence:
        sequence.append(key, value)
        result = sequence.attend(query, lse=True)
        expected = computing.attend(query, key, value, lse=True)
        np.testing.assert_array_equal(result.output, expected.output)
        np.testing.assert_array_equal(result.lse, expected.lse)
        four = sequence.attend(query[None, None], lse=True)
        np.testing.assert_array_equal(four.output, expected.output[None, None])
        assert four.lse.shape == (1, 1, 4)
        with pytest.raises(InvalidArgumentError) as caught:
            sequence.append(key[0], value[0])
        assert caught.value.field == "key"


@pytest.mark.parametrize("dtype", ["bfloat16", ml_dtypes.bfloat16, "float16"])
def test_keys_are_converted_to_the_sequences_datatype(computing, rows, normal, dtype):
    key, value = rows(20)
    query = normal(4, 3, WIDTH)
    kind = np.dtype(dtype)
    with computing.sequence(heads=HEADS, width=WIDTH, dtype=dtype) as sequence:
        assert sequence.form.datatype == kind.name
        sequence.append(key.astype(np.float64), value)
        rounded = key.astype(kind), value.astype(kind)
        for asked in (query, query.astype(kind)):
            output = sequence.attend(asked).output
            assert output.dtype == asked.dtype
            expected = attend_with_keys(computing, asked, rounded)
            np.testing.assert_array_equal(output, expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_number_beyond_the_range_is_an_infinity(computing, rows, normal, dtype):
    key, value = rows(3)
    value = value.astype(np.float64)
    value[:, 1] = 1e300
    query = normal(4, 1, WIDTH)
    assert np.isposinf(attend_with_keys(computing, query, (key, value))).all()
    with computing.sequence(heads=HEADS, width=WIDTH, dtype=dtype) as sequence:
        sequence.append(key, value)
        assert np.isposinf(sequence.attend(query).output).all()


@pytest.mark.parametrize("layer", ["1", 1.0, None, 2, -1])
def test_a_layer_that_is_none_is_named(sequence, rows, normal, layer):
    for call in (
        lambda: sequence.append(*rows(1), layer=layer),
        lambda: sequence.attend(normal(4, 1, WIDTH), layer),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            call()
        assert str(caught.value) == f"layer: {layer!r} (expected 0 to 1)"


class Index:
    """As an array of JAX or a tensor of PyTorch with one integer."""

    def __index__(self):
        return 1


@pytest.mark.parametrize("layer", [Index(), np.array(1), np.int8(1), True])
def test_a_layer_is_what_can_be_an_index(sequence, rows, normal, layer):
    key, value = rows(1)
    assert sequence.append(key, value, layer=layer) == 1
    output = sequence.attend(normal(4, 1, WIDTH), layer).output
    assert output.shape == (4, 1, WIDTH)
    assert sequence.lengths == (0, 1)


def test_keys_that_would_not_be_rounded_are_refused(sequence):
    small = np.ones((HEADS, 1, WIDTH), np.int8)
    with pytest.raises(InvalidArgumentError) as caught:
        sequence.append(small, small)
    assert caught.value.field == "key"


def test_a_batch_has_sequences_of_different_lengths(computing, rows, normal):
    kept = [rows(n) for n in (3, 70, 1)]
    query = normal(3, 4, 2, WIDTH)
    made = [computing.sequence(heads=HEADS, width=WIDTH) for _ in kept]
    for sequence, pair in zip(made, kept, strict=True):
        sequence.append(*pair)
    step = normal(3, HEADS, 2, WIDTH), normal(3, HEADS, 2, WIDTH)
    for append in (None, step):
        if append is not None:
            new = zip(*append, strict=True)
            kept = [joined(*pairs) for pairs in zip(kept, new, strict=True)]
        options = {"causal": "bottom_right"}
        output = computing.attend_sequences(
            made, query, append=append, **options
        ).output
        for n, pair in enumerate(kept):
            expected = attend_with_keys(computing, query[n], pair, **options)
            np.testing.assert_array_equal(output[n], expected)
    assert [len(sequence) for sequence in made] == [5, 72, 3]
    assert computing.delete_sequences(sequence.name for sequence in made) == 3


def test_a_packed_batch_appends_as_many_keys_as_queries(computing, rows, normal):
    made = [computing.sequence(heads=HEADS, width=WIDTH) for _ in range(2)]
    key, value, query = (normal(5, heads, WIDTH) for heads in (HEADS, HEADS, 4))
    output = computing.attend_sequences(
        made, query, append=(key, value), query_starts=[0, 2, 5], causal="bottom_right"
    ).output
    assert [len(sequence) for sequence in made] == [2, 3]
    expected = computing.attend(
        query, key, value, query_starts=[0, 2, 5], key_starts=[0, 2, 5], causal=True
    ).output
    np.testing.assert_array_equal(output, expected)
    computing.delete_sequences(sequence.name for sequence in made)


def test_a_fork_goes_its_own_way(computing, sequence, rows, normal):
    kept, query = rows(70), normal(4, 1, WIDTH)
    sequence.append(*kept)
    sequence.append(*kept, layer=1)
    with sequence.fork() as whole, sequence.fork("short", 2, label="l") as short:
        assert (len(whole), len(short), short.name) == (70, 2, "short")
        assert short.describe().label == "l"
        assert short.describe().lengths == (2, 2)
        one, other = rows(1), rows(2)
        whole.append(*one)
        sequence.append(*other)
        for forked, added in ((whole, one), (sequence, other)):
            expected = attend_with_keys(computing, query, joined(kept, added))
            np.testing.assert_array_equal(forked.attend(query).output, expected)
    assert sequence.lengths == (72, 70)


def test_truncate_keeps_the_first_keys(computing, sequence, rows, normal):
    key, value = rows(9)
    query = normal(4, 1, WIDTH)
    for layer in range(2):
        sequence.append(key, value, layer)
    sequence.truncate(4)
    assert sequence.lengths == (4, 4)
    expected = attend_with_keys(computing, query, (key[:, :4], value[:, :4]))
    np.testing.assert_array_equal(sequence.attend(query).output, expected)
    with pytest.raises(OutOfRangeError) as caught:
        sequence.truncate(5)
    assert caught.value.field == "length"
    assert isinstance(caught.value, IndexError)
