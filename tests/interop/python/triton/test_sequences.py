"""The sequence extension, as Triton's own examples and perf_analyzer use it."""

import os
import re
import subprocess
import urllib.request
from pathlib import Path

import numpy as np
import oracle
import pytest
import tritonclient.http
from numpy.testing import assert_allclose
from tensors import to_inputs
from test_streams import Replies
from tritonclient.utils import InferenceServerException

MODEL = "decode"
SDPA = "scaled_dot_product_attention"
STEPS = 11  # of the examples' sequences
PERF_ANALYZER = Path(os.environ["PERF_ANALYZER_FOLDER"])


class Steps:
    """A query, a key and a value for each step of one sequence."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        shape = (3, STEPS, 1, 2, 1, 8)
        self._tensors = random.normal(size=shape).astype(np.float32)

    def inputs(self, step, **how):
        tensors = zip(("query", "key", "value"), self._tensors[:, step])
        return to_inputs(dict(tensors), **how)

    def check(self, step, output):
        """It attends to the keys up to its own."""
        query = self._tensors[0, step]
        key, value = (np.concatenate(t[: step + 1], axis=-2) for t in self._tensors[1:])
        expected, _, _ = oracle.attend(oracle.scaled_dot_product(query, key), value)
        assert_allclose(output, expected, atol=1e-5)


def flags(step):
    return {"sequence_start": step == 0, "sequence_end": step == STEPS - 1}


def test_which_models_are_of_sequences(client):
    def is_of_sequences(model):
        return client.get_model_config(model).config.HasField("sequence_batching")

    assert is_of_sequences(MODEL)
    assert not is_of_sequences(SDPA) and not is_of_sequences("trained_linear")


# simple_grpc_sequence_sync_infer_client.py: two sequences, turn by turn.
@pytest.mark.parametrize("ids", [(1007, 1008), ("one", "other")])
def test_the_example_with_single_calls(client, ids):
    sequences = {one: Steps(n) for n, one in enumerate(ids)}
    for step in range(STEPS):
        for one, steps in sequences.items():
            result = client.infer(
                MODEL, steps.inputs(step), sequence_id=one, **flags(step)
            )
            steps.check(step, result.as_numpy("output"))
    # Both have ended.
    for one, steps in sequences.items():
        with pytest.raises(InferenceServerException, match="sequence"):
            client.infer(MODEL, steps.inputs(1), sequence_id=one)


# simple_grpc_sequence_stream_infer_client.py: two sequences, all under way at once.
@pytest.mark.parametrize("ids", [(1, 2), ("one", "other")])
def test_the_example_on_a_stream(client, ids):
    replies = Replies()
    client.start_stream(replies)
    sequences = [Steps(n) for n in range(2)]
    for step in range(STEPS):
        for n, one in enumerate(ids):
            client.async_stream_infer(
                MODEL,
                sequences[n].inputs(step),
                request_id=f"{n}_{step}",
                sequence_id=one,
                **flags(step),
            )
    for _ in range(2 * STEPS):
        result, error = replies.next()
        assert error is None
        n, step = map(int, result.get_response().id.split("_"))
        sequences[n].check(step, result.as_numpy("output"))
    client.stop_stream()


# simple_http_sequence_sync_infer_client.py.
def test_the_example_over_http(server):
    with tritonclient.http.InferenceServerClient(server.http_address) as client:
        steps = Steps(0)
        for step in range(STEPS):
            result = client.infer(
                MODEL,
                steps.inputs(step, module=tritonclient.http),
                sequence_id=7,
                **flags(step),
            )
            steps.check(step, result.as_numpy("output"))


def appended_keys(server):
    with urllib.request.urlopen(f"http://{server.http_address}/metrics") as page:
        text = page.read().decode()
    found = re.search(r'attention_resident_appended_keys_total{owner=""} (\d+)', text)
    return int(found[1])


def perf_analyzer(server, model):
    command = [PERF_ANALYZER / "perf_analyzer", "-m", model, "-u", server.address]
    command += ["-i", "grpc", "--input-data", "zero", "--concurrency-range", "3"]
    for name in ("query", "key", "value"):
        command += ["--shape", f"{name}:1,2,1,8"]
    # A window of so many requests, however long it takes.
    command += ["--measurement-mode", "count_windows"]
    command += ["--measurement-request-count", "200"]
    command += ["--stability-percentage", "999", "--max-trials", "3"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"LD_LIBRARY_PATH": str(PERF_ANALYZER)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_perf_analyzer_sends_sequences_to_a_model_of_them(server):
    before = appended_keys(server)
    said = perf_analyzer(server, MODEL)
    assert re.search(r"Sequence count: [1-9]", said), said
    # It attended to what it had appended, one key for each request.
    assert appended_keys(server) - before >= 200


def test_perf_analyzer_sends_single_requests_to_other_models(server):
    before = appended_keys(server)
    assert "Sequence count" not in perf_analyzer(server, SDPA)
    assert appended_keys(server) == before
