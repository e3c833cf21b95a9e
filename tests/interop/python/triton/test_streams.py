"""ModelStreamInfer by tritonclient."""

import queue

import pytest
from numpy.testing import assert_allclose
from tensors import to_inputs

SDPA = "scaled_dot_product_attention"
PATIENCE = 60  # seconds until a test that waits in vain fails


class Replies:
    def __init__(self):
        self._queue = queue.Queue()

    def __call__(self, result, error):
        self._queue.put((result, error))

    def next(self):
        return self._queue.get(timeout=PATIENCE)


@pytest.fixture
def replies(client):
    received = Replies()
    client.start_stream(received)
    yield received
    client.stop_stream()


def test_replies_come_in_order_with_their_ids(client, problem, replies):
    for n in range(50):
        client.async_stream_infer(
            SDPA,
            to_inputs(problem.tensors),
            request_id=str(n),
            parameters={"scale": n / 50},
        )
    for n in range(50):
        result, error = replies.next()
        assert error is None
        assert result.get_response().id == str(n)
        output, _, _ = problem.expected(scale=n / 50)
        assert_allclose(result.as_numpy("output"), output, atol=1e-5)


def test_errors_in_the_middle_leave_the_stream_open(client, problem, replies):
    good = to_inputs(problem.tensors)
    wrong = [
        ("nobody", good, {}, "unknown model: 'nobody'"),
        (SDPA, good[:2], {}, "value: missing"),
        (SDPA, good, {"scael": 1}, "'scael' is unknown"),
    ]
    for model, inputs, parameters, _ in wrong:
        client.async_stream_infer(model, inputs, parameters=parameters)
        client.async_stream_infer(SDPA, good, request_id="good")
    for _, _, _, message in wrong:
        result, error = replies.next()
        assert result is None and message in error.message()
        result, error = replies.next()
        assert error is None and result.get_response().id == "good"


def test_every_reply_is_the_final_one(client, problem, replies):
    client.async_stream_infer(
        SDPA, to_inputs(problem.tensors), enable_empty_final_response=True
    )
    result, error = replies.next()
    assert error is None
    assert result.get_response().parameters["triton_final_response"].bool_param


def test_trained_models_on_a_stream(client, problem, replies):
    client.async_stream_infer("trained_linear", to_inputs(problem.tensors))
    result, error = replies.next()
    assert error is None
    unary = client.infer("trained_linear", to_inputs(problem.tensors))
    assert (result.as_numpy("output") == unary.as_numpy("output")).all()
