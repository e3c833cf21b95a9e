"""Files of sequences: how long a node may take for them, and what is in them."""

import pytest

from attention_client import Client, _channel
from attention_client.ray.node import NodeActor


class Timed(Client):
    """It keeps how long each method was to take at most."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.limits = {}

    def _call(self, method, request, timeout, metadata):
        self.limits[method] = timeout
        return super()._call(method, request, timeout, metadata)


@pytest.fixture
def node():
    """Without Ray; its server is called by a Timed client."""
    made = NodeActor("one", "127.0.0.1", {"worker_threads": 1}, {})
    made._start()
    made._client = Timed(made._server.target)
    yield made
    made.stop()


def test_files_may_take_longer_than_other_calls(node, normal, tmp_path):
    file = str(tmp_path / "keys.safetensors")
    with node._client.sequence(heads=1, width=4, name="source") as source:
        source.append(normal(1, 5, 4), normal(1, 5, 4))
        node.write("source", file)
    assert node.read(file, "copy", "") == [5]
    for method in (_channel.EXPORT, _channel.IMPORT):
        assert node._client.limits[method] > 24 * 3600
