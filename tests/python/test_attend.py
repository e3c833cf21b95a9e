"""Every option of a call, held to attention by its definition in FP64."""

import sys
import types

import ml_dtypes
import numpy as np
import pytest
from contract import Attention, farthest, solve

from attention_client import Additive, Bilinear, Gaussian, ScaledDotProduct

B, HQ, HKV, LQ, LK, D = 2, 4, 2, 5, 7, 8


@pytest.fixture
def tensors(normal):
    return normal(B, HQ, LQ, D), normal(B, HKV, LK, D), normal(B, HKV, LK, D)


def check(result, problem, datatype="FP32"):
    expected = solve(problem, datatype)
    for name in ("output", "weights", "lse"):
        actual = getattr(result, name).astype(np.float64)
        off = farthest(
            actual, getattr(expected, name), getattr(expected, f"{name}_tolerance")
        )
        assert off <= 1, f"{name} is {off} tolerances off"


MASKS = {
    "valid_lens": np.array([3, 7]),
    "attend_mask": np.arange(LQ * LK).reshape(LQ, LK) % 3 > 0,
    "bias": np.linspace(-2, 2, LK, dtype=np.float32),
    "sinks": np.linspace(-1, 1, HQ, dtype=np.float32),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_the_contracts(computing, tensors, name):
    masks = {name: MASKS[name]}
    result = computing.attend(*tensors, **masks, weights=True, lse=True)
    check(result, Attention(*tensors, masks=masks))


@pytest.mark.parametrize(
    "given, options",
    [
        ({}, {}),
        ({"causal": True}, {"causal": "top_left"}),
        ({"causal": False}, {}),
        ({"causal": "bottom_right"}, {"causal": "bottom_right"}),
        ({"window": (1, 2)}, {"window_left": 1, "window_right": 2}),
        ({"window": (None, 0)}, {"window_right": 0}),
        ({"softcap": 0.5}, {"softcap": 0.5}),
        (
            {"valid_lens": [0, 7], "empty_rows": "uniform"},
            {"empty_rows": "uniform"},
        ),
    ],
)
def test_an_option_is_the_contracts(computing, tensors, given, options):
    result = computing.attend(*tensors, **given, weights=True, lse=True)
    masks = {"valid_lens": np.array([0, 7])} if "valid_lens" in given else {}
    check(result, Attention(*tensors, masks=masks, options=options))


def test_scoring_is_the_contracts(computing, tensors, normal):
    w_q, w_k, w_v, m = normal(D, 6), normal(D, 6), normal(6), normal(D, D)
    for scoring, name, parameters in (
        (ScaledDotProduct(), "scaled_dot_product", {}),
        (Additive(w_q, w_k, w_v), "additive", {"w_q": w_q, "w_k": w_k, "w_v": w_v}),
        (Gaussian(), "gaussian", {}),
        (Bilinear(m), "bilinear", {"m": m}),
    ):
        result = computing.attend(*tensors, scoring=scoring, weights=True, lse=True)
        check(result, Attention(*tensors, scoring=name, parameters=parameters))


def test_scale_and_sigma_change_scores(computing, tensors):
    query, key, value = tensors
    halved = computing.attend(query / 2, key, value).output
    scale = 1 / np.sqrt(D) / 2
    np.testing.assert_allclose(
        computing.attend(*tensors, scale=scale).output, halved, atol=1e-5
    )
    scoring = ScaledDotProduct(scale)
    np.testing.assert_allclose(
        computing.attend(*tensors, scoring=scoring).output, halved, atol=1e-5
    )
    wide = computing.attend(*tensors, scoring=Gaussian(2.0)).output
    narrow = computing.attend(query / 2, key / 2, value, scoring=Gaussian()).output
    np.testing.assert_allclose(wide, narrow, atol=1e-5)


def test_offsets_move_queries_and_keys(computing, tensors):
    whole = computing.attend(*tensors, causal=True).output
    query, key, value = tensors
    moved = computing.attend(query[:, :, 2:], key, value, causal=True, query_offset=2)
    np.testing.assert_allclose(moved.output, whole[:, :, 2:], atol=1e-6)
    both = computing.attend(
        query, key, value, causal=True, query_offset=5, key_offset=5
    )
    np.testing.assert_allclose(both.output, whole, atol=1e-6)
    of_entries = computing.attend(query, key, value, causal=True, query_offsets=[0, 3])
    np.testing.assert_allclose(of_entries.output[0], whole[0], atol=1e-6)
    third = computing.attend(query, key, value, causal=True, query_offset=3).output
    np.testing.assert_allclose(of_entries.output[1], third[1], atol=1e-6)


def test_alibi_slopes_are_a_bias(computing, tensors):
    slopes = np.linspace(0.1, 1, HQ, dtype=np.float32)
    distance = np.abs(np.arange(LQ)[:, None] - np.arange(LK))
    bias = -slopes[:, None, None] * distance
    np.testing.assert_allclose(
        computing.attend(*tensors, alibi_slopes=slopes).output,
        computing.attend(*tensors, bias=bias).output,
        atol=1e-5,
    )


def test_dropout_follows_from_its_seed(computing, tensors):
    def call(seed):
        return computing.attend(
            *tensors,
            training=True,
            dropout_p=0.5,
            seed=seed,
            weights=True,
            weights_after_dropout=True,
        ).weights

    dropped = call(1) == 0
    assert 0.3 < dropped.mean() < 0.7
    assert (call(1) == call(1)).all()
    assert (call(1) != call(2)).any()


@pytest.mark.parametrize("kind, name", [("float16", "FP16"), ("bfloat16", "BF16")])
def test_half_precision_comes_back_as_it_went(computing, tensors, kind, name):
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    halves = [tensor.astype(dtype) for tensor in tensors]
    result = computing.attend(*halves, weights=True, lse=True)
    assert result.output.dtype == dtype
    assert result.weights.dtype == np.float32
    check(result, Attention(*(h.astype(np.float32) for h in halves)), name)


def test_any_layout_of_an_array_will_do(computing, tensors):
    expected = computing.attend(*tensors).output
    for change in (
        lambda a: a.astype(np.float64),
        lambda a: a.astype(">f8"),
        lambda a: a.astype(">f4"),
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: a.tolist(),
    ):
        actual = computing.attend(*map(change, tensors)).output
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == np.float32


def test_ranks_two_and_three_are_one_head(computing, tensors):
    query, key, value = (tensor[:, :1] for tensor in tensors)
    expected = computing.attend(query, key, value).output
    batch = computing.attend(query[:, 0], key[:, 0], value[:, 0]).output
    np.testing.assert_array_equal(batch, expected[:, 0])
    one = computing.attend(query[0, 0], key[0, 0], value[0, 0]).output
    np.testing.assert_array_equal(one, expected[0, 0])


def test_a_result_says_who_computed_it(computing, tensors):
    result = computing.attend(*tensors, id="mine")
    assert result.id == "mine"
    assert result.backend == "cpu"
    assert result.kernel
    assert result.compute_ns > 0
    assert result.weights is None and result.lse is None


def test_results_may_be_written_to(computing, tensors):
    result = computing.attend(*tensors, weights=True, lse=True)
    for array in (result.output, result.weights, result.lse):
        array += 1
        assert array.flags.aligned and array.flags.owndata


def test_nothing_is_a_legal_number_of_queries(computing, normal):
    output = computing.attend(normal(2, 0, 4), normal(2, 3, 4), normal(2, 3, 4)).output
    assert output.shape == (2, 0, 4)


def test_a_message_may_exceed_grpcs_4_mib(client, normal):
    query, key = normal(1, 20000, 64), normal(1, 1, 64)
    output = client.attend(query, key, key).output
    np.testing.assert_allclose(output, np.broadcast_to(key, output.shape))


def test_info_and_health(client):
    info = client.info()
    assert info.version
    assert info.backends[0].name == "cpu"
    assert info.limits.max_request_bytes == 256 << 20
    assert client.health() == "SERVING"
    assert client.health("attention.v1.AttentionService") == "SERVING"


def test_a_result_shows_shapes_and_facts(computing, tensors):
    shown = repr(computing.attend(*tensors, weights=True, id="mine"))
    assert shown.startswith(
        "Result(id='mine', output=float32 (2, 4, 5, 8), weights=float32 (2, 4, 5, 7), "
        "backend='cpu', kernel="
    )
    assert "compute_ns=" in shown and "lse" not in shown and "\n" not in shown


def test_a_scoring_function_shows_shapes(normal):
    additive = Additive(normal(8, 4), normal(8, 4), [1.0] * 1000)
    assert repr(additive) == (
        "Additive(w_q=float32 (8, 4), w_k=float32 (8, 4), w_v=a list)"
    )
    assert repr(Bilinear(normal(8, 8), 0.5)) == "Bilinear(m=float32 (8, 8), scale=0.5)"
    assert repr(Bilinear([[1.0]])) == "Bilinear(m=[[1.0]])"


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", list])
def test_lengths_are_integers_of_any_kind(client, tensors, kind):
    lengths = [3, 7] if kind is list else np.array([3, 7], kind)
    result = client.attend(*tensors, valid_lens=lengths)
    expected = client.attend(*tensors, valid_lens=np.array([3, 7], np.int64))
    np.testing.assert_array_equal(result.output, expected.output)


def test_integers_are_taken_where_numbers_are(client):
    query, key, bias = [[1, 2], [3, 4]], np.array([[1, 0], [0, 2]], np.int16), [1, -1]
    result = client.attend(query, key, key, bias=bias, attend_mask=[[1, 0], [1, 1]])
    wide = np.array(query, np.float32), key.astype(np.float32)
    expected = client.attend(
        *(*wide, wide[1]),
        bias=np.array(bias, np.float32),
        attend_mask=np.array([[True, False], [True, True]]),
    )
    assert result.output.dtype == np.float32
    np.testing.assert_array_equal(result.output, expected.output)


def test_an_array_whose_mask_hides_nothing_is_taken(client, tensors):
    query, key, value = tensors
    result = client.attend(np.ma.masked_array(query), key, value)
    np.testing.assert_array_equal(
        result.output, client.attend(query, key, value).output
    )


def test_arrays_are_read_while_another_thread_imports_pytorch(computing, monkeypatch):
    begun = types.ModuleType("torch")  # without what comes later in the import
    monkeypatch.setitem(sys.modules, "torch", begun)
    rows = [[1.0, 2.0], [3.0, 4.0]]
    assert computing.attend(rows, rows, rows).output.shape == (2, 2)
