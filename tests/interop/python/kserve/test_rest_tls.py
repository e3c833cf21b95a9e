"""The kserve SDK's InferenceRESTClient, requests and curl over TLS."""

import asyncio
import json
import ssl
import subprocess

import pytest
import requests
from kserve import InferenceRESTClient, InferRequest, RESTConfig
from kserve_inputs import to_inputs
from numpy.testing import assert_allclose

SDPA = "scaled_dot_product_attention"
ONES = {
    "inputs": [
        {"name": name, "datatype": "FP32", "shape": [1, 1, 1], "data": [1]}
        for name in ("query", "key", "value")
    ]
}


@pytest.fixture
def url(tls_server):
    return f"https://{tls_server.http_address}/v2/models/{SDPA}/infer"


@pytest.fixture
def pair(certificates):
    return str(certificates / "caller.pem"), str(certificates / "caller.key")


def test_kserve(tls_server, certificates, pair, problem):
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    context.load_cert_chain(*pair)

    async def infer():
        config = RESTConfig(protocol="v2", verify=context)
        async with InferenceRESTClient(config) as client:
            return await client.infer(
                f"https://{tls_server.http_address}",
                InferRequest(model_name=SDPA, infer_inputs=to_inputs(problem.tensors)),
                model_name=SDPA,
            )

    output, _, _ = problem.expected()
    answer = asyncio.run(infer()).get_output_by_name("output").as_numpy()
    assert_allclose(answer, output, atol=1e-5)


def test_requests(url, certificates, pair):
    with requests.Session() as session:
        for closes in ("keep-alive", "close", "keep-alive"):
            reply = session.post(
                url,
                json=ONES,
                verify=str(certificates / "ca.pem"),
                cert=pair,
                headers={"Connection": closes},
                timeout=60,
            )
            assert reply.status_code == 200
            assert reply.json()["outputs"][0]["data"] == [1]


def test_requests_that_are_not_served(url, certificates, pair):
    trusted, other = str(certificates / "ca.pem"), str(certificates / "other.pem")
    for verify, cert in [(other, pair), (trusted, None)]:
        with pytest.raises(requests.exceptions.ConnectionError):
            requests.post(url, json=ONES, verify=verify, cert=cert, timeout=60)


CURL = ["curl", "--silent", "--show-error", "--max-time", "60"]
CURL += ["--header", "Content-Type: application/json"]


def curl(*arguments):
    return subprocess.run(
        [*CURL, *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def test_curl(url, certificates, pair):
    files = ["--cacert", certificates / "ca.pem", "--cert", pair[0], "--key", pair[1]]
    for version in ("--tlsv1.3", "--tlsv1.2"):
        most = ["--tls-max", "1.2"] if version == "--tlsv1.2" else []
        done = curl(url, *files, version, *most, "--data", json.dumps(ONES))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["outputs"][0]["data"] == [1]


def test_curl_that_is_not_served(url, certificates, pair):
    authority = ["--cacert", certificates / "ca.pem"]
    shown = ["--cert", pair[0], "--key", pair[1]]
    wrong = curl(url, "--cacert", certificates / "other.pem", *shown, "--data", "{}")
    assert wrong.returncode == 60, wrong.stderr  # the server's certificate
    nameless = curl(url.replace("127.0.0.1", "localhost"), *authority, *shown)
    assert nameless.returncode == 60, nameless.stderr  # not of this name
    without = curl(url, *authority, "--data", "{}")
    assert without.returncode == 56, without.stderr  # the server ends it
    plain = curl(url.replace("https", "http"), "--data", "{}")
    assert plain.returncode == 0
    assert "https://" in json.loads(plain.stdout)["error"]
