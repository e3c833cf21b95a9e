"""The kserve SDK's InferenceRESTClient, and curl."""

import asyncio
import json
import subprocess

import httpx
import numpy as np
import oracle
import pytest
from kserve import InferenceRESTClient, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput
from kserve_inputs import to_inputs
from numpy.testing import assert_allclose

SDPA = "scaled_dot_product_attention"


def run(server, use):
    async def connected():
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            return await use(client, f"http://{server.http_address}")

    return asyncio.run(connected())


def infer(server, model, inputs, **options):
    request = InferRequest(model_name=model, infer_inputs=inputs, **options)
    return run(
        server, lambda client, url: client.infer(url, request, model_name=model)
    )


def output_of(response, name="output"):
    return response.get_output_by_name(name).as_numpy()


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("model", oracle.MODELS)
def test_every_scoring_function(server, problem, model, binary):
    names, score = oracle.MODELS[model]
    parameters = {name: getattr(problem, name) for name in names}
    inputs = to_inputs({**problem.tensors, **parameters}, binary)
    output, _, _ = problem.expected(score, *parameters.values())
    assert_allclose(output_of(infer(server, model, inputs)), output, atol=1e-5)


def test_binary_outputs(server, problem):
    wanted = [RequestedOutput("weights", {"binary_data": True}), RequestedOutput("lse")]
    response = infer(
        server,
        SDPA,
        to_inputs(problem.tensors),
        request_id="mine",
        request_outputs=wanted,
        parameters={"scale": 0.25},
    )
    _, weights, lse = problem.expected(scale=0.25)
    assert response.id == "mine"
    assert_allclose(output_of(response, "weights"), weights, atol=1e-6)
    assert_allclose(output_of(response, "lse"), lse, atol=1e-5)


def test_sixteen_bits(server, problem):
    tensors = {k: t.astype(np.float16) for k, t in problem.tensors.items()}
    response = infer(
        server, SDPA, to_inputs(tensors), parameters={"binary_data_output": True}
    )
    output, _, _ = problem.expected()
    assert_allclose(output_of(response).astype(np.float64), output, atol=0.01)


def test_liveness_and_readiness(server):
    async def use(client, url):
        return (
            await client.is_server_live(url),
            await client.is_server_ready(url),
            await client.is_model_ready(url, SDPA),
            await client.is_model_ready(url, "nobody"),
        )

    assert run(server, use) == (True, True, True, False)


@pytest.mark.parametrize("model, status", [("nobody", 404), (SDPA, 400)])
def test_errors_keep_their_status(server, problem, model, status):
    with pytest.raises(httpx.HTTPStatusError) as raised:
        infer(server, model, to_inputs({"query": problem.query}))
    assert raised.value.response.status_code == status


JSON = "Content-Type: application/json"


def curl(*arguments):
    return subprocess.run(
        ["curl", "--silent", "--show-error", "--max-time", "60", "--header", JSON, *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.mark.parametrize(
    "more",
    [(), ("--header", "Transfer-Encoding: chunked"), ("--header", "Expect: 100-continue")],
    ids=["length", "chunked", "continue"],
)
def test_curl(server, more):
    body = {
        "inputs": [
            {"name": "query", "datatype": "FP32", "shape": [1, 1, 2], "data": [0, 0]},
            {
                "name": "key",
                "datatype": "FP32",
                "shape": [1, 2, 2],
                "data": [[[1, 2], [3, 4]]],
            },
            {"name": "value", "datatype": "FP32", "shape": [1, 2, 1], "data": [1, 2]},
        ]
    }
    url = f"http://{server.http_address}/v2/models/{SDPA}/infer"
    reply = json.loads(curl("--data", json.dumps(body), *more, url))
    assert reply["outputs"] == [
        {"name": "output", "datatype": "FP32", "shape": [1, 1, 1], "data": [1.5]}
    ]
