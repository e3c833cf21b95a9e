"""Files of sequences: how long a node may take for them, and what is in them."""

import json
import shutil

import pytest
from waiting import wait_for_nodes

from attention_client import Client, InvalidArgumentError, _channel
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


@pytest.fixture
def exported(cluster, normal, tmp_path):
    """A sequence of three ranges, and its checkpoint."""
    wait_for_nodes(cluster, 4)
    with cluster.sequence(heads=1, width=4, range_keys=64) as made:
        made.append(normal(1, 150, 4), normal(1, 150, 4))
        made.export(str(tmp_path / "all"))
        yield made, tmp_path / "all"


def test_a_checkpoint_begins_with_the_last_range(exported):
    # What is appended meanwhile may be in earlier ones, and in later ones alone never.
    _, folder = exported
    starts = [part["start"] for part in told(folder)["ranges"]]
    assert starts == [0, 64, 128]
    files = [folder / f"{start}.safetensors" for start in starts]
    written = [file.stat().st_mtime_ns for file in files]
    assert written == sorted(written, reverse=True)


def test_a_checkpoint_without_a_range_is_refused(cluster, exported):
    _, folder = exported
    changed = told(folder)
    del changed["ranges"][1]
    (folder / "sequence.json").write_text(json.dumps(changed))
    refused(cluster, folder, "no range from position 64 on")


def test_a_checkpoint_with_a_gap_in_a_range_is_refused(cluster, exported, tmp_path):
    sequence, folder = exported
    with sequence.fork(length=70) as short:
        short.export(str(tmp_path / "short"))
    shutil.copy(tmp_path / "short" / "64.safetensors", folder)
    refused(cluster, folder, "64.safetensors has 6 keys")


def told(folder):
    return json.loads((folder / "sequence.json").read_text())


def refused(cluster, folder, match):
    before = cluster.sequences()
    with pytest.raises(InvalidArgumentError, match=match):
        cluster.import_sequence(str(folder))
    assert cluster.sequences() == before
