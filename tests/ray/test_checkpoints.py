"""Files of sequences: how long a node may take for them, and what is in them."""

import contextlib
import itertools
import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from at_nodes import actor_of, asked, held_file, held_stops, names_at
from waiting import wait_for_nodes, wait_until

from attention_client import Client, InvalidArgumentError, NotFoundError, _channel
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


def test_a_file_that_is_written_is_on_the_disk(node, normal, tmp_path, monkeypatch):
    file = tmp_path / "keys.safetensors"
    synced = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: synced.append((os.fstat(fd).st_ino, os.fstat(fd).st_size)),
    )
    with node._client.sequence(heads=1, width=4, name="source") as source:
        source.append(normal(1, 5, 4), normal(1, 5, 4))
        size = node.write("source", str(file))
    assert synced == [(file.stat().st_ino, size)]


@pytest.fixture
def exported(cluster, normal, tmp_path):
    """A sequence of three ranges, and its checkpoint."""
    wait_for_nodes(cluster, 4)
    with cluster.sequence(heads=1, width=4, range_keys=64) as made:
        made.append(normal(1, 150, 4), normal(1, 150, 4))
        made.export(str(tmp_path / "all"))
        yield made, tmp_path / "all"


@contextlib.contextmanager
def exporting(cluster, sequence, folder):
    """An export, at a node that waits to make its file; gives its future, and that."""
    node = sequence.describe().ranges[0].replicas[0].node
    with ThreadPoolExecutor(1) as threads, held_file(node) as is_waiting:
        export = threads.submit(sequence.export, folder)
        wait_until(is_waiting)
        yield export, node


def test_a_checkpoint_begins_with_the_last_range(cluster, exported):
    # What is appended meanwhile may be in earlier ones, and in later ones alone never.
    sequence, folder = exported
    parts = {part.replicas[0].name for part in sequence.describe().ranges}
    with exporting(cluster, sequence, folder):
        kept = itertools.chain(*names_at(cluster, sequence.name).values())
        # Names end with a number that counts.
        forks = {name.split(".")[0]: name.split(".")[2] for name in {*kept} - parts}
    assert [part["start"] for part in told(folder)["ranges"]] == [0, 64, 128]
    first, second, third = (forks[f"{sequence.name}@{n}"] for n in (0, 64, 128))
    assert int(third, 16) < int(second, 16) < int(first, 16)
    assert {*itertools.chain(*names_at(cluster, sequence.name).values())} == parts


def test_a_sequence_changes_amid_its_export(cluster, exported, normal):
    sequence, folder = exported
    with exporting(cluster, sequence, folder) as (export, _):
        # Beyond the end of its last range.
        assert sequence.append(normal(1, 100, 4), normal(1, 100, 4)) == 250
        with sequence.fork() as fork:
            assert len(fork) == 250
        sequence.truncate(10)
        assert not export.done()
    with cluster.import_sequence(folder) as copy:
        assert len(copy) == 150


def test_an_export_goes_on_where_its_node_is_drained(cluster, exported):
    sequence, folder = exported
    with ThreadPoolExecutor(1) as threads, held_stops(cluster):
        with exporting(cluster, sequence, folder) as (export, node):
            draining = threads.submit(cluster.drain, node)
            wait_until(lambda: node not in cluster._ask("targets"))
            # What ends the actor does first.
            asked(actor_of(node), lambda of: of._client.close())
        assert export.result() > 0
    draining.result()
    with cluster.import_sequence(folder) as copy:
        assert len(copy) == 150
    assert sorted(os.listdir(folder)) == sorted([*files(folder), "sequence.json"])
    cluster.add_nodes(1)


def test_a_relative_folder_is_the_callers(cluster, normal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wait_for_nodes(cluster, 4)
    with cluster.sequence(heads=1, width=4) as made:
        made.append(normal(1, 5, 4), normal(1, 5, 4))
        made.export("here")
    assert (tmp_path / "here" / "sequence.json").exists()
    with cluster.import_sequence("here") as copy:
        assert len(copy) == 5


def test_a_checkpoint_takes_the_place_of_an_earlier_one(exported, normal):
    sequence, folder = exported
    before = files(folder)
    sequence.append(normal(1, 1, 4), normal(1, 1, 4))
    sequence.export(folder)
    after = files(folder)
    assert not set(before) & set(after)
    assert sorted(os.listdir(folder)) == sorted([*after, "sequence.json"])


def test_an_old_file_that_cannot_go_fails_no_export(exported):
    sequence, folder = exported
    old = files(folder)[0]
    (folder / old).unlink()
    (folder / old).mkdir()
    assert sequence.export(folder) > 0
    assert old not in files(folder)


def test_an_export_that_fails_leaves_the_earlier_checkpoint(cluster, exported, normal):
    sequence, folder = exported
    before = {file: (folder / file).read_bytes() for file in os.listdir(folder)}
    sequence.append(normal(1, 1, 4), normal(1, 1, 4))
    # The first range is written last, and its server does not have it any more.
    (first,) = sequence.describe().ranges[0].replicas
    cluster._client(first.node).delete_sequences([first.name])
    with pytest.raises(NotFoundError):
        sequence.export(folder)
    after = {file: (folder / file).read_bytes() for file in os.listdir(folder)}
    assert after == before


def test_a_checkpoint_of_files_by_positions_alone_is_taken(cluster, exported):
    # As the first builds wrote it.
    sequence, folder = exported
    changed = told(folder)
    for part in changed["ranges"]:
        name = f"{part['start']}.safetensors"
        (folder / part["file"]).rename(folder / name)
        part["file"] = name
    (folder / "sequence.json").write_text(json.dumps(changed))
    with cluster.import_sequence(folder) as copy:
        assert len(copy) == 150
    sequence.export(folder)
    assert sorted(os.listdir(folder)) == sorted([*files(folder), "sequence.json"])


def test_a_checkpoint_without_a_range_is_refused(cluster, exported):
    _, folder = exported
    changed = told(folder)
    del changed["ranges"][1]
    (folder / "sequence.json").write_text(json.dumps(changed))
    refused(cluster, folder, "no range from position 64 on")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "{",
        '{"form": {"heads": 1}, "range_keys": 64, "ranges": []}',
        '{"form": null, "range_keys": 64, "ranges": []}',
    ],
)
def test_an_index_that_is_none_is_named(cluster, tmp_path, text):
    index = tmp_path / "sequence.json"
    index.write_text(text)
    refused(cluster, tmp_path, f"{re.escape(str(index))} is no index of a checkpoint")


def test_a_checkpoint_with_a_gap_in_a_range_is_refused(cluster, exported, tmp_path):
    sequence, folder = exported
    with sequence.fork(length=70) as short:
        short.export(str(tmp_path / "short"))
    file = files(folder)[1]
    shutil.copy(tmp_path / "short" / files(tmp_path / "short")[1], folder / file)
    refused(cluster, folder, f"{file} has 6 keys")


def files(folder):
    return [part["file"] for part in told(folder)["ranges"]]


def told(folder):
    return json.loads((folder / "sequence.json").read_text())


def refused(cluster, folder, match):
    before = cluster.sequences()
    with pytest.raises(InvalidArgumentError, match=match):
        cluster.import_sequence(str(folder))
    assert cluster.sequences() == before
