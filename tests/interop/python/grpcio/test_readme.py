"""The README's call with stubs that grpcio-tools generates."""

import subprocess
import sys
from pathlib import Path

import grpc
import numpy as np
import readme
from attention.v1 import attention_pb2 as pb
from attention.v1 import attention_pb2_grpc as rpc


def test_the_call_without_the_package_runs(server):
    query, key, value = np.random.default_rng(1).normal(size=(3, 2, 3, 4))
    names = dict(grpc=grpc, np=np, pb=pb, rpc=rpc, query=query, key=key, value=value)
    code = readme.block("python", "AttentionServiceStub")
    exec(code.replace("127.0.0.1:8001", server.address), names)
    assert names["output"].shape == (2, 3, 4)
    # Causal: the first query sees the first key alone.
    np.testing.assert_allclose(names["output"][:, 0], value[:, 0], rtol=1e-6)
    assert names["reply"].HasField("weights")


def test_the_example_says_where_no_server_answers():
    program = Path(__file__).parents[4] / "examples/python/attend.py"
    said = subprocess.run(
        [sys.executable, program, "--server", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert said.returncode == 1
    assert said.stderr.startswith("127.0.0.1:1: UNAVAILABLE: ")
    assert "Traceback" not in said.stderr
