"""Nodes that are emptied and let go, amid calls."""

import contextlib
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import ray
from at_nodes import asked, held_file, names_at
from checked import HEADS, KEYS, WIDTH, report
from ray._raylet import GcsClient
from waiting import wait_for_nodes, wait_until

from attention_client import NotFoundError, ResourceExhaustedError
from attention_client.ray import AttentionCluster, moving


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_drained_node_loses_nothing(cluster, checked, running, replicas):
    one = checked(replicas)
    victim = one.servers()[0]
    with running(one.attend) as reads, running(lambda: one.sharded.fork().delete()):
        cluster.drain(victim)
        reads.wait_for(3)
    assert victim not in [node.node for node in cluster.nodes()]
    assert victim not in one.servers()
    one.step()
    cluster.add_nodes(1)
    assert len(cluster.nodes()) == 4
    one.step()


def test_a_drain_goes_on_where_other_nodes_die(cluster, normal, kill):
    wait_for_nodes(cluster, 4)
    rows = normal(HEADS, 5, WIDTH), normal(HEADS, 5, WIDTH)
    with cluster.sequence(heads=HEADS, width=WIDTH) as sequence:
        sequence.append(*rows)
        victim = sequence.describe().ranges[0].replicas[0].node
        expected = sequence.attend(rows[0]).output
        others = [other for other in cluster.nodes() if other.node != victim]
        # The map does not know yet that these cannot take its keys.
        for other in others[:2]:
            kill(other)
        cluster.drain(victim)
        assert victim not in [node.node for node in cluster.nodes()]
        np.testing.assert_array_equal(sequence.attend(rows[0]).output, expected)
    wait_for_nodes(cluster, 3)
    cluster.add_nodes(1)


@pytest.mark.usefixtures("ray_cluster")
def test_a_drain_keeps_the_last_replica_where_the_other_has_just_died(normal, kill):
    rows = normal(HEADS, 64, WIDTH), normal(HEADS, 64, WIDTH)
    with (
        AttentionCluster(2, name="last", cpus=0) as cluster,
        cluster.sequence(heads=HEADS, width=WIDTH, range_keys=64, replicas=2) as one,
    ):
        one.append(*rows)
        expected = one.attend(rows[0]).output
        first, second = one.describe().ranges[0].replicas
        kill(report(cluster, second.node))
        # Until the second one's node has another server there is no place.
        with contextlib.suppress(ResourceExhaustedError):
            cluster.drain(first.node)
        np.testing.assert_array_equal(one.attend(rows[0]).output, expected)


@pytest.mark.usefixtures("ray_cluster")
def test_a_drain_goes_on_where_the_node_is_lost_that_has_just_taken_keys(normal):
    rows = normal(HEADS, 5, WIDTH), normal(HEADS, 5, WIDTH)

    def prepare(of):
        copied = of._replicas.new_replica

        def copy_and_lose(*arguments):
            of._replicas.new_replica = copied
            made = copied(*arguments)
            of._watch._lose(of._state.node(made.node))
            return made

        of._replicas.new_replica = copy_and_lose

    with (
        AttentionCluster(3, name="taken", cpus=0) as cluster,
        cluster.sequence(heads=HEADS, width=WIDTH) as one,
    ):
        one.append(*rows)
        expected = one.attend(rows[0]).output
        ray.get(cluster._map.__ray_call__.remote(prepare), timeout=60)
        cluster.drain(one.describe().ranges[0].replicas[0].node)
        np.testing.assert_array_equal(one.attend(rows[0]).output, expected)


@pytest.mark.usefixtures("ray_cluster")
def test_a_server_that_comes_amid_a_drain_goes_on():
    with AttentionCluster(2, name="amid", cpus=0) as cluster:
        victim, other = cluster.nodes()

        def prepare(of):
            empty = of._empty

            def crash(name):
                os.kill(victim.pid, signal.SIGKILL)
                # Until another one is there, with the first one's actor.
                for _ in range(3000):
                    names = {node.node for node in of.nodes()}
                    if len(names) == 2 and name not in names:
                        break
                empty(name)

            of._empty = crash

        ray.get(cluster._map.__ray_call__.remote(prepare), timeout=60)
        with pytest.raises(NotFoundError, match=victim.node):
            cluster.drain(victim.node)
        (new,) = [one for one in cluster.nodes() if one.node != other.node]
        assert new.ray_node == victim.ray_node
        assert psutil.pid_exists(new.pid)


@pytest.mark.usefixtures("ray_cluster")
def test_a_node_whose_drain_fails_takes_what_lost_a_replica_meanwhile(normal):
    def prepare(of, victim):
        rebuild, is_rebuilt = of._placement.rebuild, threading.Event()

        def rebuild_and_tell(name):
            is_without = victim not in of._state.node_names()
            rebuild(name)
            if is_without:
                is_rebuilt.set()

        def fail(_):
            actor, _ = victim.rsplit(".", 1)
            ray.kill(ray.get_actor(actor, namespace=moving.NAMESPACE))
            assert is_rebuilt.wait(60)
            raise ResourceExhaustedError("told to fail")

        of._placement.rebuild, of._empty = rebuild_and_tell, fail

    with (
        AttentionCluster(3, name="thin", cpus=0) as cluster,
        cluster.sequence(heads=HEADS, width=WIDTH, replicas=2) as one,
    ):
        victim, stays = (at.node for at in one.describe().ranges[0].replicas)
        (other,) = {node.node for node in cluster.nodes()} - {victim, stays}
        ray.get(cluster._map.__ray_call__.remote(prepare, victim), timeout=60)
        with pytest.raises(ResourceExhaustedError, match="told to fail"):
            cluster.drain(other)

        def nodes():
            return [at.node for at in one.describe().ranges[0].replicas]

        wait_until(lambda: nodes() == [stays, other])


@pytest.mark.usefixtures("ray_cluster")
def test_a_rebalance_moves_nothing_to_a_node_whose_drain_has_looked_at_it(normal):
    def prepare(of):
        move, empty = of._placement.move, of._empty
        is_empty, is_moved = threading.Event(), threading.Event()

        def empty_and_wait(node):
            empty(node)
            is_empty.set()
            is_moved.wait(60)

        def move_amid_drain(name, part, onto):
            of._placement.move, of._empty = move, empty_and_wait
            with ThreadPoolExecutor(1) as threads:
                threads.submit(of.drain, onto[-1].name)
                is_empty.wait(60)
                moved = move(name, part, onto)
                is_moved.set()
            return moved

        of._placement.move = move_amid_drain

    rows = normal(HEADS, 128, WIDTH), normal(HEADS, 128, WIDTH)
    with (
        AttentionCluster(1, name="chosen", cpus=0) as cluster,
        cluster.sequence(heads=HEADS, width=WIDTH, range_keys=64) as one,
    ):
        one.append(*rows)
        (first,) = cluster.nodes()
        cluster.add_nodes(1, balance=False)
        asked(cluster._map, prepare)
        assert cluster._ask("rebalance") == 0
        assert [node.node for node in cluster.nodes()] == [first.node]
        assert one.describe().missing == ()


@pytest.mark.usefixtures("ray_cluster")
def test_a_drain_chooses_again_where_the_node_is_drained_that_has_just_taken_keys(
    normal,
):
    def prepare(of):
        copied = of._replicas.new_replica

        def copy_and_drain(*arguments):
            of._replicas.new_replica = copied
            made = copied(*arguments)
            of.drain(made.node)
            return made

        of._replicas.new_replica = copy_and_drain

    rows = normal(HEADS, 64, WIDTH), normal(HEADS, 64, WIDTH)
    with (
        AttentionCluster(4, name="again", cpus=0) as cluster,
        cluster.sequence(heads=HEADS, width=WIDTH, range_keys=64, replicas=2) as one,
    ):
        one.append(*rows)
        victim, stays = (at.node for at in one.describe().ranges[0].replicas)
        asked(cluster._map, prepare)
        cluster.drain(victim)
        (last,) = {node.node for node in cluster.nodes()} - {stays}
        assert [at.node for at in one.describe().ranges[0].replicas] == [stays, last]


def test_a_sequence_without_keys_moves(cluster, normal):
    wait_for_nodes(cluster, 4)
    with cluster.sequence(heads=HEADS, width=WIDTH) as sequence:
        victim = sequence.describe().ranges[0].replicas[0].node
        cluster.drain(victim)
        assert sequence.describe().ranges[0].replicas[0].node != victim
        assert sequence.append(*[normal(HEADS, 5, WIDTH)] * 2) == 5
    cluster.add_nodes(1)


def test_appends_go_on_while_all_moves(cluster, checked, running):
    one = checked(replicas=1)
    with running(one.step) as steps:
        for victim in one.servers()[:2]:
            cluster.drain(victim)
            steps.wait_for(3)
        cluster.add_nodes(2)
        steps.wait_for(3)
    assert len(one.servers()) == 4
    one.attend()


@pytest.fixture
def full_range(cluster, normal):
    """A sequence of one range without room, and the node that has it."""
    wait_for_nodes(cluster, 4)
    with cluster.sequence(heads=1, width=4, range_keys=64) as sequence:
        sequence.append(normal(1, 64, 4), normal(1, 64, 4))
        yield sequence, sequence.describe().ranges[0].replicas[0].node
    cluster.add_nodes(1)


def test_a_full_range_that_moves_holds_nobody_up(cluster, normal, full_range):
    sequence, victim = full_range
    with ThreadPoolExecutor(1) as threads:
        with held_file(victim) as is_copying:
            draining = threads.submit(cluster.drain, victim)
            wait_until(is_copying)
            assert sequence.append(normal(1, 10, 4), normal(1, 10, 4)) == 74
            assert sequence.describe().lengths == (74,)
            assert not draining.done()
        draining.result()
        assert sequence.describe().lengths == (74,)
        assert sum(map(len, names_at(cluster, sequence.name).values())) == 2


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_full_range_that_is_cut_off_while_it_moves_leaves_no_copy(
    cluster, full_range, is_copied
):
    sequence, victim = full_range
    with ThreadPoolExecutor(1) as threads:
        with held_file(victim, is_copied) as is_copying:
            draining = threads.submit(cluster.drain, victim)
            wait_until(is_copying)
            sequence.truncate(10)
        draining.result()
        assert sequence.describe().lengths == (10,)
        assert sum(map(len, names_at(cluster, sequence.name).values())) == 1


def test_a_range_that_is_closed_twice_keeps_its_count(cluster, checked):
    one = checked(replicas=1)
    tail = one.sharded.describe().ranges[-1]
    (replica,) = tail.replicas
    sources = [(cluster._client(replica.node), replica)]
    closed = moving.close(sources, one.sharded._map, tail)
    assert closed == ([KEYS - tail.start], True, [replica])
    assert moving.close(sources, one.sharded._map, tail) == closed
    one.attend()  # the mark is not seen


@pytest.mark.long
def test_a_node_that_ray_drains_loses_nothing(ray_cluster, cluster, checked, running):
    one = checked(replicas=1)
    victim = report(cluster, one.servers()[0])
    with running(one.step) as steps:
        accepted, _ = GcsClient(address=ray_cluster.address).drain_node(
            victim.ray_node, 2, "the test", 2**62
        )
        assert accepted
        wait_until(lambda: victim.node not in one.servers())
        steps.wait_for(3)
    one.attend()
    ray_cluster.add_node(num_cpus=1)
    wait_for_nodes(cluster, 3)
    cluster.add_nodes(1)
    one.attend()
