"""What the map knows of nodes: found again after a restart, and let go with them."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import ray
from at_nodes import asked
from checked import HEADS, WIDTH, report
from waiting import wait_for_nodes, wait_until

from attention_client import KeysLostError, NotFoundError, UnavailableError
from attention_client.ray import AttentionCluster, moving


def test_the_map_is_found_again(cluster, checked):
    one = checked(replicas=1)
    before = one.sharded.describe()
    ray.kill(cluster._map, no_restart=False)
    wait_for_nodes(cluster, 4)
    after = one.sharded.describe()
    assert after.ranges == before.ranges
    one.step()


@contextlib.contextmanager
def with_a_lost_node(is_forgotten):
    """A cluster that has lost its one node, for which it does nothing yet.

    is_forgotten: by the maps of sequences, too.
    """

    def lose(of):
        of._watch._start = lambda *_: None
        if not is_forgotten:
            of._state.put = lambda known: known
        (node,) = of._state.nodes()
        of._watch._lose(node)

    with AttentionCluster(1, name="lost", cpus=0, is_kept=True) as cluster:
        sequence = cluster.sequence(heads=HEADS, width=WIDTH)
        (node,) = cluster.nodes()
        ray.get(cluster._map.__ray_call__.remote(lose), timeout=60)
        yield cluster, sequence, node


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("is_forgotten", [True, False])
def test_a_map_that_starts_anew_replaces_what_was_lost_before(normal, is_forgotten):
    with with_a_lost_node(is_forgotten) as (cluster, sequence, before):
        ray.kill(cluster._map, no_restart=False)
        wait_for_nodes(cluster, 1)
        (after,) = cluster.nodes()
        assert (after.ray_node, after.held_bytes) == (before.ray_node, 0)
        assert after.node != before.node
        assert not psutil.pid_exists(before.pid)
        with pytest.raises(KeysLostError):
            sequence.append(normal(HEADS, 1, WIDTH), normal(HEADS, 1, WIDTH))


@pytest.mark.usefixtures("ray_cluster")
def test_a_node_that_is_lost_when_its_cluster_ends_is_not_left():
    with with_a_lost_node(is_forgotten=True) as (_, _, node):
        assert psutil.pid_exists(node.pid)
    wait_until(lambda: not psutil.pid_exists(node.pid))


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("is_ended", [False, True])
def test_a_node_that_is_leaving_when_the_map_restarts_is_not_left(is_ended):
    def hold(_):
        from attention_client.ray import moving

        moving.stop = lambda _: threading.Event().wait()

    with AttentionCluster(2, name="leaving", cpus=0, is_kept=True) as cluster:
        node, _ = cluster.nodes()
        asked(cluster._map, hold)
        with ThreadPoolExecutor(1) as threads:
            draining = threads.submit(cluster.drain, node.node)
            wait_until(lambda: node.node not in cluster._ask("targets"))
            ray.kill(cluster._map, no_restart=False)
            with pytest.raises(UnavailableError):
                draining.result()
        if not is_ended:
            wait_until(lambda: not moving.is_alive(node.node.rsplit(".", 1)[0]))
            assert not psutil.pid_exists(node.pid)
            wait_until(lambda: node.ray_node not in cluster._ask("taken"))
    wait_until(lambda: not psutil.pid_exists(node.pid))


def held_by_map(cluster):
    """Of what comes and goes: locks by sequence, clients by target, and targets."""

    def asked(of):
        return list(of._state._locks), list(of._replicas._clients), of.targets()

    return ray.get(cluster._map.__ray_call__.remote(asked), timeout=60)


def test_the_map_keeps_nothing_of_sequences_that_are_deleted(cluster):
    wait_for_nodes(cluster, 4)
    with cluster.sequence(heads=1, width=4) as sequence:
        sequence.describe()
    with pytest.raises(NotFoundError):
        sequence.describe()
    locks, _, _ = held_by_map(cluster)
    assert sequence.name not in locks


def test_nothing_is_kept_of_servers_that_are_gone(cluster, checked, kill):
    one = checked(replicas=2)
    one.attend()
    victim = report(cluster, one.servers()[0])
    assert victim.node in cluster._clients
    assert victim.target in held_by_map(cluster)[1]
    kill(victim)
    wait_until(lambda: victim.pid not in [node.pid for node in cluster.nodes()])
    wait_for_nodes(cluster, 4)
    _, clients, targets = held_by_map(cluster)
    assert victim.target not in clients
    new = next(node for node in targets if node not in cluster._clients)
    cluster._client(new)
    assert victim.node not in cluster._clients
    assert victim.node not in cluster._recent._seconds


def test_nodes_are_found_within_the_calls_timeout(cluster, checked):
    one = checked(replicas=1)
    with AttentionCluster.connect(cluster.name) as other:
        opened = other.open_sequence(one.sharded.name)
        ask, given = other._ask, []

        def noted(*arguments, timeout=60):
            given.append(timeout)
            return ask(*arguments, timeout=timeout)

        other._ask = noted
        opened.attend(one.rows(1)[0], timeout=20)
        assert given and max(given) <= 20


def test_a_map_that_restarts_is_asked_within_what_is_left(cluster, monkeypatch):
    ask, given = moving.ask_handle, []

    def restarting(*arguments):
        given.append(arguments[-1])
        if len(given) < 3:
            raise moving.RestartingError("again")
        return ask(*arguments)

    monkeypatch.setattr(moving, "ask_handle", restarting)
    cluster._ask("names", timeout=20)
    assert 20 == given[0] > given[1] > given[2]


def test_a_map_of_before_a_drain_is_not_an_error(cluster, checked):
    one = checked(replicas=1)
    # Which has called no server yet, and does not find the one that goes.
    with AttentionCluster.connect(cluster.name) as other:
        opened = other.open_sequence(one.sharded.name)
        cluster.drain(one.servers()[0])
        assert opened.attend(one.rows(1)[0]).missing == ()
    cluster.add_nodes(1)


@pytest.mark.usefixtures("ray_cluster")
def test_no_server_is_added_where_another_one_is_to_come_back(monkeypatch):
    with with_a_lost_node(is_forgotten=True) as (cluster, _, lost):
        start, given = cluster._starter.start, []

        def noted(ask, taken):
            given.append(taken)
            return start(ask, taken)

        monkeypatch.setattr(cluster._starter, "start", noted)
        (added,) = cluster.add_nodes(1)
        assert given == [[lost.ray_node]]
        assert added.ray_node != lost.ray_node
