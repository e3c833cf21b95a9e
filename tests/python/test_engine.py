"""The engine in the caller's process: the same calls as a client's, without copies."""

import dataclasses
import pickle
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from attention_client import (
    Additive,
    Bilinear,
    Gaussian,
    InvalidArgumentError,
    NotFoundError,
    Options,
    ParameterSet,
    ResourceExhaustedError,
    Result,
)

B, HQ, HKV, LQ, LK, D = 2, 4, 2, 5, 7, 8
SMALL = [np.ones((3, 4), np.float32)] * 3


@pytest.fixture
def tensors(normal):
    return normal(B, HQ, LQ, D), normal(B, HKV, LK, D), normal(B, HKV, LK, D)


def test_it_gives_the_bits_of_a_server(client, engine, tensors):
    for options in (
        {},
        {"causal": True},
        {"valid_lens": [3, 7]},
        {"window": (1, 1)},
        {"weights_after_dropout": True},  # of which there is none
    ):
        given = {**options, "weights": True, "lse": True, "top_k": 2}
        here, there = (one.attend(*tensors, **given) for one in (engine, client))
        for name in ("output", "weights", "lse", "top_k_indices", "top_k_weights"):
            np.testing.assert_array_equal(getattr(here, name), getattr(there, name))


def test_a_result_is_the_clients_and_whole(engine, tensors):
    result = engine.attend(*tensors)
    assert type(result) is Result
    assert set(vars(result)) == {one.name for one in dataclasses.fields(Result)}
    assert result.queue_ns == 0 and result.compute_ns > 0


def test_every_option_is_known(engine, tensors):
    engine.attend(*tensors, **dict.fromkeys(Options.__annotations__))


@pytest.mark.parametrize(
    "change",
    [
        {"key": np.ones((3, 5), np.float32)},
        {"value": np.ones((2, 4), np.float32)},
        {"valid_lens": [[3, 9]]},
        {"attend_mask": np.full((3, 3), 2, np.uint8)},
        {"softcap": -1.0},
        {"top_k": 0},
        {"causal": "bottom_right", "query_offset": 1},
        {"dropout_p": 1.0},
        {"scale": float("nan")},
        {"scoring": Gaussian(-1.0)},
        {"scoring": Additive(np.ones((4, 2)), np.ones((4, 3)), np.ones(2))},
        {"scoring": Bilinear(np.ones((4, 3)), "wide")},
        {"window": (-2, None)},
        {"window": (1.0, 2)},
        {"window": "12"},
        {"query_offset": 2.0},
        {"query_offset": "2"},
        {"seed": np.float32(1)},
        {"top_k": 1 + 0j},
        {"softcap": np.array(1.0)},
        {"scale": "0.5"},
        {"scoring": Gaussian("0.5")},
        {"training": "true"},
        {"weights": "no"},
        {"key_weights": np.zeros(2)},
        {"timeout": "5"},
        {"timeout": float("inf")},
        {"id": "x" * 300},
        {"query": np.array(["x"])},
        {"unknown": 1},
    ],
)
def test_errors_are_those_of_a_client(client, engine, change):
    given = dict(zip(("query", "key", "value"), SMALL, strict=True)) | change
    errors = []
    for one in (client, engine):
        with pytest.raises((InvalidArgumentError, TypeError)) as caught:
            one.attend(**given)
        errors.append((type(caught.value), getattr(caught.value, "field", None)))
        texts = str(caught.value).partition(" (")[0]
        errors[-1] += (texts,)
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda a: np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
        lambda a: np.repeat(a, 2, axis=2)[:, :, ::2],
        lambda a: np.ascontiguousarray(a[:, ::-1, ::-1])[:, ::-1, ::-1],
        lambda a: np.concatenate([a, a], axis=-1)[..., : a.shape[-1]],
        np.asfortranarray,
    ],
)
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"weights": True}])
def test_strides_change_no_bit(engine, tensors, change, options):
    expected = engine.attend(*tensors, **options).output
    strided = [change(tensor) for tensor in tensors]
    assert not any(tensor.flags.c_contiguous for tensor in strided)
    np.testing.assert_array_equal(engine.attend(*strided, **options).output, expected)


@pytest.mark.parametrize("extent", range(4))
def test_strides_of_0_change_no_bit(engine, tensors, extent):
    views = [np.broadcast_to(a.take([0], extent), a.shape) for a in tensors]
    copies = [view.copy() for view in views]
    for options in ({}, {"causal": True}, {"weights": True}):
        np.testing.assert_array_equal(
            engine.attend(*views, **options).output,
            engine.attend(*copies, **options).output,
        )


def test_masks_and_parameters_may_be_strided(engine, tensors, normal):
    bias, w_q, w_k, w_v = normal(LQ, 2 * LK), normal(6, D), normal(6, D), normal(12)
    lengths = np.array([3, 9, 5, 9])
    given = {
        "bias": bias[:, ::2],
        "valid_lens": lengths[::2],
        "scoring": Additive(w_q.T, w_k.T, w_v[::2]),
    }
    whole = {
        "bias": bias[:, ::2].copy(),
        "valid_lens": lengths[::2].copy(),
        "scoring": Additive(w_q.T.copy(), w_k.T.copy(), w_v[::2].copy()),
    }
    np.testing.assert_array_equal(
        engine.attend(*tensors, **given).output, engine.attend(*tensors, **whole).output
    )


def test_a_datatype_is_known_by_what_it_is(engine):
    halves = np.ones((3, 4), np.float16)
    pickled = pickle.loads(pickle.dumps(halves))  # its dtype is an object of its own
    for x in (pickled, halves.astype(">f2"), halves.astype(ml_dtypes.bfloat16)):
        out = np.zeros_like(pickle.loads(pickle.dumps(x)), x.dtype.newbyteorder("="))
        engine.attend(x, x, x, out=out)
        np.testing.assert_array_equal(out, x)


def test_there_are_no_parameter_sets(engine):
    with pytest.raises(NotFoundError, match="parameter_set: 'mine'"):
        engine.attend(*SMALL, scoring=ParameterSet("mine"))


def test_results_too_large_for_the_memory_are_refused(engine):
    query = np.broadcast_to(np.float32(1), (1 << 24, 8))  # weights: 1 PiB
    with pytest.raises(ResourceExhaustedError, match="weights: no memory"):
        engine.attend(query, query, query, weights=True)


def test_numbers_of_numpy_are_options(engine, tensors):
    given = {"softcap": np.float32(2), "top_k": np.int16(2), "causal": np.bool_(True)}
    plain = {"softcap": 2.0, "top_k": 2, "causal": True}
    one, other = (engine.attend(*tensors, **options) for options in (given, plain))
    np.testing.assert_array_equal(one.output, other.output)
    np.testing.assert_array_equal(one.top_k_indices, other.top_k_indices)


def test_numbers_are_taken_as_a_client_takes_them(client, engine, tensors):
    given = {
        "query_offset": np.int64(3),
        "lse": np.int64(1),
        "causal": True,
        "softcap": True,
        "scale": Fraction(1, 2),
        "window": (np.uint8(3), 1),
        "timeout": np.float32(50),
    }
    one, other = (on.attend(*tensors, **given) for on in (engine, client))
    np.testing.assert_array_equal(one.output, other.output)


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int64])
def test_integers_are_taken_as_a_client_takes_them(client, engine, kind):
    x = np.arange(12).reshape(3, 4)
    given = {
        "valid_lens": np.array([2], np.int16),
        "attend_mask": np.eye(3, dtype=kind),
    }
    one, other = (
        on.attend(x[None], x[None], x[None], **given) for on in (engine, client)
    )
    np.testing.assert_array_equal(one.output, other.output)


def test_bfloat16_is_read_where_it_is(engine, tensors):
    halves = [tensor.astype(ml_dtypes.bfloat16) for tensor in tensors]
    swapped = [np.ascontiguousarray(h.swapaxes(1, 2)).swapaxes(1, 2) for h in halves]
    expected = engine.attend(*halves).output
    out = np.empty(expected.shape, ml_dtypes.bfloat16)
    engine.attend(*swapped, out=out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_none_in_place_of_an_array_is_named(computing, name):
    x = np.ones((3, 4), np.float32)
    with pytest.raises(InvalidArgumentError, match=f"{name}: None .expected an array"):
        computing.attend(**({"query": x, "key": x, "value": x} | {name: None}))
