"""tritonclient's HTTP client over TLS, where callers must show a certificate."""

import asyncio
import ssl

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from numpy.testing import assert_allclose
from tensors import to_inputs
from tritonclient.utils import InferenceServerException

SDPA = "scaled_dot_product_attention"


def connect(server, folder, ca="ca", shows=True):
    options = {"ca_certs": str(folder / f"{ca}.pem")}
    if shows:
        options["certfile"] = str(folder / "caller.pem")
        options["keyfile"] = str(folder / "caller.key")
    return triton.InferenceServerClient(
        server.http_address, ssl=True, ssl_options=options
    )


def test_calls_are_served(tls_server, certificates, problem):
    output, _, _ = problem.expected()
    with connect(tls_server, certificates) as client:
        assert client.is_server_ready()
        assert client.get_model_metadata(SDPA)["name"] == SDPA
        for _ in range(3):
            result = client.infer(SDPA, to_inputs(problem.tensors, triton))
            assert_allclose(result.as_numpy("output"), output, atol=1e-5)


def test_a_large_request_and_reply(tls_server, certificates):
    values = np.random.default_rng(1).random((1, 65536, 64), np.float32)
    tensors = {"query": values, "key": values[:, :1], "value": values[:, :1]}
    with connect(tls_server, certificates) as client:
        result = client.infer(SDPA, to_inputs(tensors, triton)).as_numpy("output")
    assert_allclose(result, np.broadcast_to(values[:, :1], values.shape), atol=1e-6)


@pytest.mark.parametrize("ca, shows", [("other", True), ("ca", False)])
def test_a_wrong_authority_and_no_certificate(tls_server, certificates, ca, shows):
    with connect(tls_server, certificates, ca, shows) as client:
        with pytest.raises((ssl.SSLError, OSError)):
            client.get_model_metadata(SDPA)


def test_plain_text_is_told_where_to_go(tls_server, problem):
    with triton.InferenceServerClient(tls_server.http_address) as client:
        assert client.is_server_live()
        with pytest.raises(InferenceServerException, match="https://"):
            client.infer(SDPA, to_inputs(problem.tensors, triton))


def test_from_asyncio(tls_server, certificates, problem):
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    context.load_cert_chain(certificates / "caller.pem", certificates / "caller.key")

    async def infer():
        async with triton_aio.InferenceServerClient(
            tls_server.http_address, ssl=True, ssl_context=context
        ) as client:
            return await client.infer(SDPA, to_inputs(problem.tensors, triton_aio))

    output, _, _ = problem.expected()
    assert_allclose(asyncio.run(infer()).as_numpy("output"), output, atol=1e-5)
