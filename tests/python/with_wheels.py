"""What a user does with the wheels; tests/python/wheels runs it with nothing else."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from attention_client import AttentionBackend, Client, LocalServer
from attention_client.plots import show_heatmaps
from attention_client.server import find_binary

assert "site-packages/attention_server/bin" in find_binary(), find_binary()
x = np.random.default_rng(1).normal(size=(1, 2, 5, 8))
with LocalServer() as server, Client(server.target) as client:
    result = client.attend(x, x, x, weights=True)
    maps = Path(f"/proc/{server.pid}/maps").read_text()
    program = Path(sys.executable).with_name("attention-client")
    subprocess.run([program, "health", "--server", server.target], check=True)
scores = np.einsum("bhid,bhjd->bhij", x, x) / 8**0.5
weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
np.testing.assert_allclose(result.weights, weights, atol=1e-5)
show_heatmaps(result.weights).savefig("weights.png")
with AttentionBackend("local") as engine:
    here = engine.attend(x, x, x, weights=True)
    in_process = Path("/proc/self/maps").read_text()
np.testing.assert_array_equal(here.weights, result.weights)
# Their libraries are those that came along.
for loaded, library, folder in (
    (maps, "libgrpc", "attention_server.libs"),
    (in_process, "libtbb", "attention_engine.libs"),
):
    own = {line.split()[-1] for line in loaded.splitlines() if library in line}
    assert own and all(folder in path for path in own), own
assert "libprotobuf" not in in_process
print("a call to the server of", find_binary())
