"""What tritonclient is told where a request is wrong."""

import numpy as np
import pytest
from tensors import to_inputs, to_outputs
from tritonclient.utils import InferenceServerException

SDPA = "scaled_dot_product_attention"


def refusal(call, *arguments, **options):
    """(status, message) of a call that must fail."""
    with pytest.raises(InferenceServerException) as raised:
        call(*arguments, **options)
    return raised.value.status(), raised.value.message()


def test_an_unknown_model(client, problem):
    status, message = refusal(client.infer, "nobody", to_inputs(problem.tensors))
    assert status == "StatusCode.NOT_FOUND"
    assert message == "Request for unknown model: 'nobody' is not found"


@pytest.mark.parametrize(
    "version, code", [("2", "NOT_FOUND"), ("-1", "INVALID_ARGUMENT"), ("x", "INVALID_ARGUMENT")]
)
def test_a_wrong_version(client, problem, version, code):
    status, message = refusal(
        client.infer, SDPA, to_inputs(problem.tensors), model_version=version
    )
    assert status == f"StatusCode.{code}"
    assert "model_version" in message


@pytest.mark.parametrize("missing", ["query", "key", "value"])
def test_a_missing_input(client, problem, missing):
    tensors = {k: t for k, t in problem.tensors.items() if k != missing}
    status, message = refusal(client.infer, SDPA, to_inputs(tensors))
    assert status == "StatusCode.INVALID_ARGUMENT"
    assert message == f"{missing}: missing"


def test_a_missing_parameter_input(client, problem):
    _, message = refusal(
        client.infer, "bilinear_attention", to_inputs(problem.tensors)
    )
    assert message == "m: missing"


def test_an_unknown_input(client, problem):
    tensors = {**problem.tensors, "mask": np.ones((5, 7), np.bool_)}
    status, message = refusal(client.infer, SDPA, to_inputs(tensors))
    assert status == "StatusCode.INVALID_ARGUMENT"
    assert "'mask'" in message and "attend_mask" in message


def test_an_input_twice(client, problem):
    twice = to_inputs(problem.tensors) + to_inputs({"key": problem.key})
    _, message = refusal(client.infer, SDPA, twice)
    assert message == "key: given twice"


def test_an_unknown_parameter(client, problem):
    status, message = refusal(
        client.infer, SDPA, to_inputs(problem.tensors), parameters={"scael": 1.0}
    )
    assert status == "StatusCode.INVALID_ARGUMENT"
    for known in ("'scael'", "scale", "window_left", "empty_rows"):
        assert known in message


@pytest.mark.parametrize(
    "parameter, value",
    [
        ("scale", "much"),
        ("window_left", 1.5),
        ("training", "perhaps"),
        ("causal", "yes"),
        ("causal", 1),
        ("sigma", 1.0),  # scaled dot product has none
        ("softcap", -1.0),
    ],
)
def test_a_parameter_with_a_wrong_value(client, problem, parameter, value):
    status, message = refusal(
        client.infer, SDPA, to_inputs(problem.tensors), parameters={parameter: value}
    )
    assert status == "StatusCode.INVALID_ARGUMENT"
    assert message.startswith(f"{parameter}: ")


def test_an_unknown_output(client, problem):
    status, message = refusal(
        client.infer,
        SDPA,
        to_inputs(problem.tensors),
        outputs=to_outputs("output", "attention"),
    )
    assert status == "StatusCode.INVALID_ARGUMENT"
    assert "'attention'" in message and "weights" in message


def test_shapes_that_do_not_fit(client, problem):
    tensors = {**problem.tensors, "key": problem.key[..., :-1]}
    tensors["key"] = np.ascontiguousarray(tensors["key"])
    status, message = refusal(client.infer, SDPA, to_inputs(tensors))
    assert status == "StatusCode.INVALID_ARGUMENT"
    assert message.startswith("key: ")


def test_a_datatype_that_no_tensor_has(client, problem):
    tensors = {name: t.astype(np.float64) for name, t in problem.tensors.items()}
    status, message = refusal(client.infer, SDPA, to_inputs(tensors))
    assert status == "StatusCode.INVALID_ARGUMENT"
    assert message.startswith("query: datatype FP64")


def test_lengths_beyond_the_keys(client, problem):
    tensors = {**problem.tensors, "valid_lens": np.array([7, 8], np.int64)}
    _, message = refusal(client.infer, SDPA, to_inputs(tensors))
    assert message.startswith("valid_lens: element [1] is 8")


def test_a_server_that_refused_goes_on(client, problem):
    refusal(client.infer, SDPA, [])
    assert client.infer(SDPA, to_inputs(problem.tensors)).as_numpy("output") is not None
