"""The README's calls over the Open Inference Protocol: tritonclient's, and curl's."""

import json
import subprocess

import numpy as np
import readme
import tritonclient.grpc


def test_the_call_with_tritonclient_runs(server):
    arrays = np.random.default_rng(1).normal(size=(3, 2, 3, 4)).astype(np.float32)
    names = dict(tritonclient=tritonclient, **dict(zip(("query", "key", "value"), arrays)))
    code = readme.block("python", "tritonclient")
    exec(code.replace("127.0.0.1:8001", server.address), names)
    assert names["output"].shape == (2, 3, 4)
    # Causal: the first query sees the first key alone.
    np.testing.assert_allclose(names["output"][:, 0], arrays[2][:, 0], rtol=1e-6)


def test_the_call_with_curl_runs(server):
    code = readme.block("sh", "curl").replace("127.0.0.1:8002", server.http_address)
    done = subprocess.run(["bash", "-ec", code], capture_output=True, text=True, check=True)
    (output,) = json.loads(done.stdout)["outputs"]
    # The scores are 1 / sqrt(2) and 0.
    weight = 1 / (1 + np.exp(-(2**-0.5)))
    np.testing.assert_allclose(output["data"], [10 * weight + 20 * (1 - weight)], rtol=1e-5)
