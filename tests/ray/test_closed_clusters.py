"""Handles of other programs, and clusters that are closed."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from compared import HEADS, KEYS, WIDTH

from attention_client import CancelledError
from attention_client.ray import AttentionCluster, tree

NODES = 4


def test_another_program_finds_it(cluster, both, normal):
    sharded, _ = both
    with AttentionCluster.connect() as other:
        opened = other.open_sequence(sharded.name)
        assert opened.lengths == (KEYS,)
        assert sharded.name in other.sequences()
        rows = normal(HEADS, 1, WIDTH), normal(HEADS, 1, WIDTH)
        opened.append(*rows)
    assert sharded.attend(normal(4, 1, WIDTH)).output.shape == (4, 1, WIDTH)
    assert len(sharded) == KEYS
    sharded.describe()
    assert len(sharded) == KEYS + 1


@pytest.mark.parametrize("keys", [1, KEYS], ids=["one server", "several"])
def test_a_closed_cluster_calls_nobody(cluster, normal, keys):
    rows = normal(HEADS, keys, WIDTH), normal(HEADS, keys, WIDTH)
    with cluster.sequence(heads=HEADS, width=WIDTH, range_keys=64) as made:
        made.append(*rows)
        with AttentionCluster.connect() as other:
            opened = other.open_sequence(made.name)
            opened.attend(rows[0])
        for call in (lambda: opened.attend(rows[0]), lambda: opened.append(*rows)):
            with pytest.raises(CancelledError, match="is closed"):
                call()
        assert not other._clients


def test_a_closed_cluster_asks_no_map(cluster, normal, tmp_path):
    with cluster.sequence(heads=HEADS, width=WIDTH, range_keys=64) as made:
        with AttentionCluster.connect() as other:
            opened = other.open_sequence(made.name)
        many = normal(HEADS, KEYS, WIDTH)  # beyond the end of its only range
        before = made.describe()
        for call in (
            lambda: opened.append(many, many),
            lambda: opened.describe(),
            lambda: opened.fork("forked"),
            lambda: opened.truncate(0),
            lambda: opened.export(tmp_path / "folder"),
        ):
            with pytest.raises(CancelledError, match="is closed"):
                call()
        assert made.describe() == before
        assert "forked" not in cluster.sequences()
        assert not (tmp_path / "folder").exists()


class Threads(ThreadPoolExecutor):
    """Before each call that it takes it does something."""

    def __init__(self, before):
        super().__init__(NODES)
        self.before = before

    def submit(self, *arguments):
        self.before()
        return super().submit(*arguments)


def test_a_cluster_that_is_closed_meanwhile_says_so(both, normal, monkeypatch):
    monkeypatch.setattr(tree, "MOST_ASKED", NODES + 1)
    with AttentionCluster.connect() as other:
        opened = other.open_sequence(both[0].name)
        monkeypatch.setattr(other, "_threads", Threads(other.close))
        with pytest.raises(CancelledError, match="is closed"):
            opened.attend(normal(4, 1, WIDTH))


def test_a_thread_that_cannot_start_is_told(both, cluster, normal, monkeypatch):
    def fail():
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(tree, "MOST_ASKED", NODES + 1)
    with Threads(fail) as threads, monkeypatch.context() as patch:
        patch.setattr(cluster, "_threads", threads)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            both[0].attend(normal(4, 1, WIDTH))


def test_a_sequence_is_deleted_after_its_cluster_is_closed(cluster):
    with AttentionCluster.connect() as other:
        made = other.sequence(heads=HEADS, width=WIDTH)
        with made:
            other.close()
    assert made.name not in cluster.sequences()
