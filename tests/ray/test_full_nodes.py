"""Nodes without room for what they are to take."""

import contextlib

import pytest
import ray
from at_nodes import asked
from full import FORM, fill, no_reports
from waiting import wait_for_nodes, wait_until

from attention_client import Client, ResourceExhaustedError
from attention_client.ray import AttentionCluster, moving


@contextlib.contextmanager
def small_cluster(nodes, name, normal):
    """Servers of 4 MiB each, and a sequence whose 2.5 MB are at two of them."""
    flags = {"worker_threads": 1, "resident_memory_limit": 4 << 20}
    with (
        AttentionCluster(nodes, name=name, cpus=0, flags=flags) as cluster,
        cluster.sequence(**FORM, replicas=2, range_keys=8192) as sequence,
    ):
        no_reports(cluster)
        sequence.append(normal(1, 5000, 64), normal(1, 5000, 64))
        yield cluster, sequence


def lose(replica):
    """Kills the actor of its node, with which the server ends."""
    actor, _ = replica.node.rsplit(".", 1)
    ray.kill(ray.get_actor(actor, namespace=moving.NAMESPACE))


def nodes_of(sequence):
    """Of its only range."""
    (part,) = sequence.describe().ranges
    return [replica.node for replica in part.replicas]


def without(cluster, nodes):
    """Nodes that have none of its keys, in the order in which they are chosen."""
    return [node for node in cluster._ask("targets") if node not in nodes]


def test_replicas_come_back_once_there_is_room(ray_cluster, normal):
    rows = normal(1, 7000, 64), normal(1, 7000, 64)
    with small_cluster(3, "full", normal) as (full, sequence):
        replicas = sequence.describe().ranges[0].replicas
        nodes = {one.node: one for one in full.nodes()}
        (other,) = nodes.keys() - {one.node for one in replicas}
        with Client(nodes[other].target) as client:
            with client.sequence(**FORM) as own:
                own.append(*rows)
                before = sequence.describe().version
                lose(replicas[1])
                # The node goes, its replica is begun anew, and that has an end.
                wait_until(lambda: sequence.describe().version >= before + 3)
                assert len(sequence.describe().ranges[0].replicas) == 1
                # Nor is there room for a second copy where the keys are.
                assert sequence.append(*[half[:, :1] for half in rows]) == 5001
            # No node comes or goes from now on.
            wait_until(lambda: len(sequence.describe().ranges[0].replicas) == 2)
        assert len(full.nodes()) == 2
        assert len(sequence) == 5001


def test_a_node_that_is_full_leaves_a_rebuild_to_others(ray_cluster, normal):
    rows = normal(1, 7000, 64), normal(1, 7000, 64)
    with small_cluster(4, "one full", normal) as (cluster, sequence):
        replicas = sequence.describe().ranges[0].replicas
        first, _ = without(cluster, nodes_of(sequence))
        with cluster._client(first).sequence(**FORM) as own:
            own.append(*rows)
            lose(replicas[1])
            wait_for_nodes(cluster, 3)
            wait_until(lambda: len(sequence.describe().ranges[0].replicas) == 2)
            assert first not in nodes_of(sequence)


@pytest.mark.usefixtures("ray_cluster")
def test_a_node_that_is_full_leaves_a_drain_to_others(normal):
    rows = normal(1, 7000, 64), normal(1, 7000, 64)
    with small_cluster(4, "one full", normal) as (cluster, sequence):
        victim, stays = nodes_of(sequence)
        first, second = without(cluster, [victim, stays])
        with cluster._client(first).sequence(**FORM) as own:
            own.append(*rows)
            cluster.drain(victim)
        assert nodes_of(sequence) == [stays, second]
        assert sequence.describe().lengths == (5000,)


@pytest.mark.usefixtures("ray_cluster")
def test_a_drain_that_finds_no_room_leaves_all_as_it_was(normal):
    rows = normal(1, 7000, 64), normal(1, 7000, 64)
    with small_cluster(3, "no room", normal) as (cluster, sequence):
        before = nodes_of(sequence)
        (other,) = without(cluster, before)
        with cluster._client(other).sequence(**FORM) as own:
            own.append(*rows)
            with pytest.raises(ResourceExhaustedError):
                cluster.drain(before[0])
            assert sequence.append(*[half[:, :1] for half in rows]) == 5001
        assert nodes_of(sequence) == before
        cluster.drain(before[0])
        assert nodes_of(sequence) == [before[1], other]


@pytest.mark.usefixtures("ray_cluster")
def test_a_node_that_is_full_leaves_a_rebalance_to_others(normal):
    rows = normal(1, 8000, 64), normal(1, 8000, 64)
    flags = {"worker_threads": 1, "resident_memory_limit": 4 << 20}
    with (
        AttentionCluster(2, name="balanced", cpus=0, flags=flags) as cluster,
        cluster.sequence(**FORM, range_keys=1024) as sequence,
    ):
        for start in range(0, 3072, 1024):
            part = slice(start, start + 1024)
            sequence.append(*[half[:, part] for half in rows])
        first, second = (one.node for one in cluster.add_nodes(2, balance=False))
        with cluster._client(first).sequence(**FORM) as own:
            own.append(*rows)
            assert cluster._ask("rebalance") == 1
        ranges = sequence.describe().ranges
        held = {one.node for part in ranges for one in part.replicas}
        assert (first in held, second in held) == (False, True)
        assert sequence.describe().lengths == (3072,)


def test_a_range_moves_from_a_node_without_room_for_a_second_copy(ray_cluster, normal):
    with small_cluster(3, "half", normal) as (half, sequence):
        (part,) = sequence.describe().ranges
        lose(part.replicas[1])
        wait_for_nodes(half, 2)
        wait_until(lambda: len(sequence.describe().ranges[0].replicas) == 2)
        assert sequence.append(normal(1, 1, 64), normal(1, 1, 64)) == 5001


@contextlib.contextmanager
def full_cluster(name, normal, layers=1):
    """A server without room for a page, a sequence of full pages, and another's."""
    flags = {"worker_threads": 1, "resident_memory_limit": 4 << 20}
    form = {**FORM, "layers": layers}
    rows = normal(1, 1280, 64), normal(1, 1280, 64)
    with (
        AttentionCluster(1, name=name, cpus=0, flags=flags) as cluster,
        cluster.sequence(**form, range_keys=8192) as sequence,
    ):
        own = cluster._client(cluster.nodes()[0].node).sequence(**FORM)
        for layer in range(layers):
            sequence.append(*rows, layer)
        fill(own, normal)
        yield cluster, sequence, own


@pytest.mark.usefixtures("ray_cluster")
def test_a_range_that_a_full_node_cannot_close_goes_on(normal):
    with full_cluster("stuck", normal) as (cluster, sequence, own):
        (full,) = cluster.nodes()
        cluster.add_nodes(1)
        with pytest.raises(ResourceExhaustedError, match=full.node):
            cluster.drain(full.node)
        assert cluster.open_sequence(sequence.name).lengths == (1280,)
        sequence.attend(normal(1, 1, 64))
        with sequence.fork() as fork:
            assert len(fork) == 1280
        own.delete()
        cluster.drain(full.node)
        assert sequence.append(normal(1, 1, 64), normal(1, 1, 64)) == 1281


@pytest.mark.usefixtures("ray_cluster")
def test_a_node_that_ray_drains_takes_nothing_back_where_that_fails(normal):
    flags = {"worker_threads": 1, "resident_memory_limit": 4 << 20}
    rows = normal(1, 1280, 64), normal(1, 1280, 64)
    with (
        AttentionCluster(2, name="ray drains", cpus=0, flags=flags) as cluster,
        cluster.sequence(**FORM, range_keys=64, replicas=2) as both,
        cluster.sequence(**FORM, range_keys=8192) as stays,
    ):
        both.append(*[half[:, :64] for half in rows])
        stays.append(*rows)
        (leaving,) = nodes_of(stays)
        (other,) = without(cluster, [leaving])
        fill(cluster._client(other).sequence(**FORM), normal)
        (ray_node,) = (n.ray_node for n in cluster.nodes() if n.node == leaving)

        def drain(of):
            empty, of._tries = of._empty, 0

            def counted(node):
                of._tries += 1
                empty(node)

            of._empty, moving.draining = counted, lambda: {ray_node}

        asked(cluster._map, drain)
        wait_until(lambda: asked(cluster._map, lambda of: of._tries) >= 3)
        assert nodes_of(both) == [other]
        assert cluster._ask("copied_bytes") == 0


@pytest.mark.usefixtures("ray_cluster")
def test_a_node_without_room_for_a_fork_exports(normal, tmp_path):
    with full_cluster("exports", normal) as (cluster, sequence, own):
        client = cluster._client(cluster.nodes()[0].node)
        with contextlib.suppress(ResourceExhaustedError):
            while True:
                client.sequence(**FORM)
        with pytest.raises(ResourceExhaustedError):
            sequence.fork()
        sequence.export(tmp_path)
        own.delete()
        with cluster.import_sequence(tmp_path) as copy:
            assert len(copy) == 1280


@pytest.mark.usefixtures("ray_cluster")
def test_layers_that_are_closed_where_others_cannot_be_count_their_keys(normal):
    with full_cluster("half", normal, layers=2) as (cluster, sequence, own):
        (full,) = cluster.nodes()
        cluster.add_nodes(1, balance=False)
        own.truncate(len(own) - 64)
        with pytest.raises(ResourceExhaustedError, match=full.node):
            cluster.drain(full.node)
        assert sequence.describe().lengths == (1280, 1280)
        with pytest.raises(ResourceExhaustedError, match=full.node):
            sequence.fork()
        row = normal(1, 1, 64)
        with pytest.raises(ResourceExhaustedError, match=full.node):
            sequence.append(row, row)
        sequence.truncate(1000)
        for layer in range(2):
            assert sequence.append(row, row, layer) == 1001


@pytest.mark.usefixtures("ray_cluster")
def test_full_ranges_that_move_make_room_for_others(normal):
    flags = {"worker_threads": 1, "resident_memory_limit": 4 << 20}
    rows = normal(1, 1280, 64), normal(1, 1280, 64)
    with (
        AttentionCluster(1, name="room", cpus=0, flags=flags) as cluster,
        cluster.sequence(**FORM, range_keys=8192) as one,
        cluster.sequence(**FORM, range_keys=1280) as other,
    ):
        one.append(*rows)
        other.append(*rows)
        (first,) = cluster.nodes()
        cluster.add_nodes(1, balance=False)
        fill(cluster._client(first.node).sequence(**FORM), normal)
        cluster.drain(first.node)
        assert one.describe().lengths == other.describe().lengths == (1280,)


@pytest.mark.usefixtures("ray_cluster")
def test_a_replica_with_room_closes_a_range_for_a_full_node(normal):
    with small_cluster(3, "one closes", normal) as (cluster, sequence):
        sequence.truncate(4992)  # whole pages
        victim, stays = nodes_of(sequence)
        (other,) = without(cluster, [victim, stays])
        fill(cluster._client(victim).sequence(**FORM), normal)
        cluster.drain(victim)
        assert nodes_of(sequence) == [stays, other]
        assert sequence.append(normal(1, 1, 64), normal(1, 1, 64)) == 4993
