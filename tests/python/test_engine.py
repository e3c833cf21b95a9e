"""The engine in the caller's process: what it does that a client does not."""

import dataclasses
import multiprocessing
import pickle
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

from attention_client import (
    Additive,
    Bilinear,
    DeadlineExceededError,
    FailedPreconditionError,
    Gaussian,
    InvalidArgumentError,
    NotFoundError,
    Options,
    ParameterSet,
    ResourceExhaustedError,
    Result,
)
from attention_engine import Engine

B, HQ, HKV, LQ, LK, D = 2, 4, 2, 5, 7, 8
SMALL = [np.ones((3, 4), np.float32)] * 3
# Some thousand times what a test may take, for one thread.
LONG = [np.broadcast_to(np.float32(1), (1, 400_000, 8))] * 3


@pytest.fixture
def tensors(normal):
    return normal(B, HQ, LQ, D), normal(B, HKV, LK, D), normal(B, HKV, LK, D)


def attend_in_a_child(engine, outcome):
    try:
        engine.attend(*SMALL)
    except FailedPreconditionError as error:
        outcome.put(error.message)


def forked(function, *arguments):
    """What the function puts into a queue, in a forked child that then ends."""
    context = multiprocessing.get_context("fork")
    outcome = context.Queue()
    child = context.Process(target=function, args=(*arguments, outcome))
    child.start()
    try:
        return outcome.get(timeout=60)
    finally:
        child.join(10)
        child.kill()  # where it hangs
        child.join()


def test_it_gives_the_bits_of_a_server(client, engine, tensors):
    for options in ({}, {"causal": True}, {"valid_lens": [3, 7]}, {"window": (1, 1)}):
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


def test_a_datatype_is_known_by_what_it_is(engine):
    halves = np.ones((3, 4), np.float16)
    pickled = pickle.loads(pickle.dumps(halves))  # its dtype is an object of its own
    for x in (pickled, halves.astype(">f2"), halves.astype(ml_dtypes.bfloat16)):
        out = np.zeros_like(pickle.loads(pickle.dumps(x)), x.dtype.newbyteorder("="))
        engine.attend(x, x, x, out=out)
        np.testing.assert_array_equal(out, x)


def test_other_threads_run_while_it_computes():
    x = np.ones((1, 8192, 64), np.float32)
    out = np.full_like(x, np.nan)
    with Engine(threads=1) as engine:
        call = threading.Thread(
            target=engine.attend, args=(x, x, x), kwargs={"out": out}
        )
        call.start()
        while np.isnan(out[0, 0, 0]):
            assert call.is_alive() or not np.isnan(out[0, 0, 0])
        seen_half_done = np.isnan(out[0, -1, -1])
        call.join()
    assert seen_half_done
    np.testing.assert_allclose(out, 1, rtol=1e-6)


DAEMON = """
import threading
import numpy as np
from attention_engine import Engine
x = np.ones((1, 1000, 64), np.float32)
engine, begun = Engine(threads=1), threading.Event()
def loop():
    while True:
        engine.attend(x, x, x)
        begun.set()
threading.Thread(target=loop, daemon=True).start()
begun.wait()
"""


def test_a_program_ends_while_a_daemon_computes():
    ended = subprocess.run(
        [sys.executable, "-c", DAEMON], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_many_threads_may_call_at_once(engine, normal):
    inputs = [normal(2, 4, length, 16) + length for length in range(1, 65, 4)]
    expected = [engine.attend(x, x, x, causal=True).output for x in inputs]
    wrong = []

    def call(first):
        for n in range(40):
            i = (first + n) % len(inputs)
            x = inputs[i]
            found = engine.attend(x, x, x, causal=True).output
            if not np.array_equal(found, expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_deadline_is_a_timeout(engine):
    with pytest.raises(DeadlineExceededError, match="not finished within 0.1 s"):
        engine.attend(*LONG, timeout=0.1)
    with pytest.raises(InvalidArgumentError, match="timeout: nan"):
        engine.attend(*SMALL, timeout=float("nan"))
    assert engine.attend(*SMALL, timeout=float("inf")).output.shape == (3, 4)


def test_lengths_that_change_meanwhile_change_nothing():
    # 4,096 rows; a length beyond the keys would be read beyond the tensors.
    x = np.ones((1, 4096, 64), np.float32)
    lengths = np.full(1, 4096)
    out = np.full_like(x, np.nan)
    with Engine(threads=1) as engine:
        call = threading.Thread(
            target=engine.attend,
            args=(x, x, x),
            kwargs={"out": out, "valid_lens": lengths},
        )
        call.start()
        while call.is_alive() and np.isnan(out[0, 0, 0]):
            pass
        lengths[:] = 1 << 40
        call.join()
    np.testing.assert_allclose(out, 1, rtol=1e-6)


def test_a_child_that_was_forked_is_told(engine):
    engine.attend(*SMALL)
    assert "spawn" in forked(attend_in_a_child, engine)

    def make(outcome):
        try:
            Engine()
        except FailedPreconditionError as error:
            outcome.put(error.message)

    assert "spawn" in forked(make)
    assert engine.attend(*SMALL).output.shape == (3, 4)


FORKING = """
import os, signal, sys
import numpy as np
from attention_engine import Engine

engine = Engine(threads=2)
engine.attend(*[np.ones((1, 512, 64), np.float32)] * 3)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(60)  # ends a child that hangs
del engine
"""


def test_a_forked_child_ends():
    subprocess.run([sys.executable, "-c", FORKING], check=True)


def test_settings_are_pickled(tensors):
    made = pickle.loads(pickle.dumps(Engine(threads=2, backend="reference")))
    assert repr(made) == "Engine(threads=2, backend='reference')"
    result = made.attend(*tensors)
    assert result.backend == "reference"
    assert made.info().worker_threads == 2


def test_a_closed_engine_says_so():
    with Engine(threads=1) as engine:
        engine.attend(*SMALL)
    with pytest.raises(FailedPreconditionError, match="closed"):
        engine.attend(*SMALL)


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"threads": -1}, "threads: -1"),
        ({"threads": 5000}, "threads: 5000"),
        ({"backend": "abacus"}, "backend: 'abacus'"),
    ],
)
def test_wrong_settings_are_named(settings, said):
    with pytest.raises(InvalidArgumentError, match=said):
        Engine(**settings)


def test_info_tells_of_backends_and_threads(engine):
    info = engine.info()
    assert [backend.name for backend in info.backends][-2:] == ["cpu", "reference"]
    assert info.worker_threads == 2
    assert info.version


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
