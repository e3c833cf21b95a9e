"""Requests of tritonclient, against the definition."""

import queue

import ml_dtypes
import numpy as np
import oracle
import pytest
import tritonclient.grpc as triton
from numpy.testing import assert_allclose
from tensors import to_inputs, to_outputs
from tritonclient.utils import InferenceServerException

SDPA = "scaled_dot_product_attention"


@pytest.mark.parametrize("model", oracle.MODELS)
def test_every_scoring_function(client, problem, model):
    names, score = oracle.MODELS[model]
    parameters = {name: getattr(problem, name) for name in names}
    result = client.infer(model, to_inputs({**problem.tensors, **parameters}))
    output, _, _ = problem.expected(score, *parameters.values())
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)


@pytest.mark.parametrize(
    "datatype, unit", [(np.float16, 2**-11), (ml_dtypes.bfloat16, 2**-8)]
)
def test_sixteen_bit_tensors(client, datatype, unit):
    problem = oracle.Problem(seed=2)
    for name in ("query", "key", "value"):
        rounded = getattr(problem, name).astype(datatype)
        setattr(problem, name, rounded.astype(np.float32))
    tensors = {name: t.astype(datatype) for name, t in problem.tensors.items()}
    result = client.infer(SDPA, to_inputs(tensors)).as_numpy("output")
    assert result.dtype == datatype
    output, _, _ = problem.expected()
    assert_allclose(result.astype(np.float64), output, atol=4 * unit)


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_every_rank(client, problem, rank):
    first = (0,) * (4 - rank)
    tensors = {name: t[first] for name, t in problem.tensors.items()}
    result = client.infer(SDPA, to_inputs(tensors))
    output, _, _ = problem.expected()
    assert_allclose(result.as_numpy("output"), output[first], atol=1e-5)


def test_weights_and_lse_where_they_are_asked_for(client, problem):
    wanted = to_outputs("lse", "output", "weights")
    result = client.infer(SDPA, to_inputs(problem.tensors), outputs=wanted)
    output, weights, lse = problem.expected()
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)
    assert_allclose(result.as_numpy("weights"), weights, atol=1e-6)
    assert_allclose(result.as_numpy("lse"), lse, atol=1e-5)
    assert [o.name for o in result.get_response().outputs] == [
        "lse",
        "output",
        "weights",
    ]


def test_the_output_alone_where_nothing_is_asked_for(client, problem):
    result = client.infer(SDPA, to_inputs(problem.tensors))
    assert [o.name for o in result.get_response().outputs] == ["output"]
    assert result.as_numpy("weights") is None


def test_masks(client, problem):
    random = np.random.default_rng(3)
    attend_mask = random.random((5, 7)) < 0.7
    attend_mask[:, 0] = True
    masks = {
        "valid_lens": np.array([7, 4], np.int32),
        "attend_mask": attend_mask,
        "bias": random.normal(size=(3, 1, 7)).astype(np.float32),
    }
    result = client.infer(SDPA, to_inputs({**problem.tensors, **masks}))
    output, _, _ = problem.expected(masks=masks)
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)


@pytest.mark.parametrize("scale", [0.25, "0.25", 0, "0"])
def test_numbers_come_as_double_integer_or_text(client, problem, scale):
    result = client.infer(
        SDPA, to_inputs(problem.tensors), parameters={"scale": scale}
    )
    output, _, _ = problem.expected(scale=float(scale))
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)


def test_the_causal_rule_and_a_window(client, problem):
    result = client.infer(
        SDPA,
        to_inputs(problem.tensors),
        parameters={"causal": "top_left", "window_left": 2},
    )
    query, key = np.arange(5)[:, None], np.arange(7)
    seen = (key <= query) & (key >= query - 2)
    output, _, _ = problem.expected(masks={"attend_mask": seen})
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)


def test_dropout_follows_the_seed(client, problem):
    def run(seed):
        parameters = {"training": True, "dropout_p": 0.5, "seed": seed}
        result = client.infer(
            SDPA, to_inputs(problem.tensors), parameters=parameters
        )
        return result.as_numpy("output")

    assert np.array_equal(run(1), run(1))
    assert not np.array_equal(run(1), run(2))


def test_ids_and_versions_come_back(client, problem):
    response = client.infer(
        SDPA, to_inputs(problem.tensors), model_version="1", request_id="mine"
    ).get_response()
    assert (response.id, response.model_name) == ("mine", SDPA)
    assert response.model_version == "1"


def test_the_protocols_own_parameters_are_passed_over(client, problem):
    result = client.infer(
        SDPA,
        to_inputs(problem.tensors),
        sequence_id=5,
        sequence_start=True,
        sequence_end=True,
        priority=1,
        timeout=1_000_000,
    )
    output, _, _ = problem.expected()
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)


def test_over_a_unix_socket(server, unix_socket, problem):
    with triton.InferenceServerClient(f"unix:{unix_socket}") as client:
        result = client.infer(SDPA, to_inputs(problem.tensors))
    output, _, _ = problem.expected()
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)


def test_more_than_grpcs_usual_limit(client):
    problem = oracle.Problem(batch=1, heads=2, queries=16, keys=16_384, width=64)
    result = client.infer(SDPA, to_inputs(problem.tensors))
    output, _, _ = problem.expected()
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_are_refused(client, problem, algorithm):
    with pytest.raises(InferenceServerException, match=f"'{algorithm}' is disabled") as raised:
        client.infer(SDPA, to_inputs(problem.tensors), compression_algorithm=algorithm)
    assert raised.value.status() == "StatusCode.UNIMPLEMENTED"


def test_calls_that_overlap(client, problem):
    done = queue.Queue()
    for _ in range(20):
        client.async_infer(
            SDPA,
            to_inputs(problem.tensors),
            lambda result, error: done.put((result, error)),
        )
    output, _, _ = problem.expected()
    for _ in range(20):
        result, error = done.get(timeout=60)
        assert error is None
        assert_allclose(result.as_numpy("output"), output, atol=1e-5)


@pytest.mark.parametrize("model", ["trained_additive", "trained_linear"])
def test_a_trained_additive_attention(client, problem, model):
    trained = client.infer(model, to_inputs(problem.tensors)).as_numpy("output")
    parameters = {"w_q": problem.w_q, "w_k": problem.w_k, "w_v": problem.w_v}
    sent = client.infer(
        "additive_attention", to_inputs({**problem.tensors, **parameters})
    )
    assert np.array_equal(trained, sent.as_numpy("output"))


def test_a_trained_models_options_are_defaults(client, problem):
    def trained(**options):
        result = client.infer("trained_bilinear", to_inputs(problem.tensors), **options)
        return result.as_numpy("output")

    half, _, _ = problem.expected(oracle.bilinear, problem.m, scale=0.5)
    assert_allclose(trained(), half, atol=1e-5)
    double, _, _ = problem.expected(oracle.bilinear, problem.m, scale=2)
    assert_allclose(trained(parameters={"scale": 2}), double, atol=1e-4)


def test_a_trained_model_takes_no_parameters_again(client, problem):
    with pytest.raises(InferenceServerException, match="input 'm' is unknown"):
        client.infer(
            "trained_bilinear", to_inputs({**problem.tensors, "m": problem.m})
        )


def test_random_bytes_in_every_input(client):
    random = np.random.default_rng(4)
    for _ in range(10):
        tensors = {
            name: np.frombuffer(random.bytes(4 * 2 * 3 * 8 * 4), np.float32)
            for name in ("query", "key", "value")
        }
        tensors = {name: t.reshape(4, 2, 3, 8) for name, t in tensors.items()}
        result = client.infer(SDPA, to_inputs(tensors))
        assert result.as_numpy("output").shape == (4, 2, 3, 8)
