"""tritonclient's asyncio twin."""

import asyncio

import oracle
import pytest
import tritonclient.grpc.aio as triton
from numpy.testing import assert_allclose
from tensors import to_inputs, to_outputs
from tritonclient.utils import InferenceServerException

SDPA = "scaled_dot_product_attention"


def run(server, use):
    """The result of a coroutine function that is given a connected client."""

    async def connected():
        async with triton.InferenceServerClient(server.address) as client:
            return await use(client)

    return asyncio.run(connected())


@pytest.mark.parametrize("model", oracle.MODELS)
def test_every_scoring_function(server, problem, model):
    names, score = oracle.MODELS[model]
    parameters = {name: getattr(problem, name) for name in names}
    inputs = to_inputs({**problem.tensors, **parameters}, triton)
    outputs = to_outputs("output", "weights", "lse", module=triton)
    result = run(server, lambda client: client.infer(model, inputs, outputs=outputs))
    output, weights, lse = problem.expected(score, *parameters.values())
    assert_allclose(result.as_numpy("output"), output, atol=1e-5)
    assert_allclose(result.as_numpy("weights"), weights, atol=1e-5)
    assert_allclose(result.as_numpy("lse"), lse, atol=1e-5)


def test_many_at_once(server, problem):
    inputs = to_inputs(problem.tensors, triton)

    async def use(client):
        return await asyncio.gather(*[client.infer(SDPA, inputs) for _ in range(32)])

    output, _, _ = problem.expected()
    for result in run(server, use):
        assert_allclose(result.as_numpy("output"), output, atol=1e-5)


def test_a_stream_with_an_error_in_the_middle(server, problem):
    inputs = to_inputs(problem.tensors, triton)

    async def use(client):
        async def requests():
            for n, model in enumerate([SDPA, "nobody", "trained_linear"]):
                yield {"model_name": model, "inputs": inputs, "request_id": str(n)}

        return [reply async for reply in client.stream_infer(requests())]

    replies = run(server, use)
    assert [error is None for _, error in replies] == [True, False, True]
    assert "'nobody'" in replies[1][1].message()
    assert [replies[n][0].get_response().id for n in (0, 2)] == ["0", "2"]


def test_what_is_asked_beside_inference(server):
    async def use(client):
        assert await client.is_server_live() and await client.is_server_ready()
        assert await client.is_model_ready(SDPA)
        metadata = await client.get_model_metadata(SDPA)
        config = await client.get_model_config(SDPA)
        index = await client.get_model_repository_index()
        await client.get_inference_statistics(SDPA)
        return metadata, config.config, index.models

    metadata, config, models = run(server, use)
    assert metadata.name == config.name == SDPA
    assert SDPA in {model.name for model in models}


def test_an_unknown_model(server, problem):
    inputs = to_inputs(problem.tensors, triton)
    with pytest.raises(InferenceServerException, match="'nobody' is not found"):
        run(server, lambda client: client.infer("nobody", inputs))
