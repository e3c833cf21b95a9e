"""Servers and nodes that die and are started anew, amid calls."""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import ray
from checked import HEADS, KEYS, WIDTH, report
from waiting import wait_for_nodes, wait_until

from attention_client import (
    Client,
    DeadlineExceededError,
    KeysLostError,
    NotFoundError,
)
from attention_client.ray import AttentionCluster, moving, watching
from attention_client.ray import node as node_module

CALLS = ["attend", "append", "step", "fork"]


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize("call", CALLS)
def test_with_replicas_a_server_may_be_killed(cluster, checked, kill, running, call):
    one = checked(replicas=2)
    with running(getattr(one, call)) as calls:
        kill(report(cluster, one.servers()[0]))
        calls.wait_for(5)
    one.attend()
    # Ranges have two replicas again, in the background.
    wait_until(lambda: all(len(p.replicas) == 2 for p in one.sharded.describe().ranges))
    one.attend()


@pytest.mark.usefixtures("asking")
def test_without_replicas_the_missing_positions_are_named(cluster, checked, kill):
    one = checked(replicas=1)
    ranges = one.sharded.describe().ranges
    victim = ranges[1].replicas[0].node
    lost = [(p.start, p.end) for p in ranges if p.replicas[0].node == victim]
    query = one.rows(1)[0]
    kill(report(cluster, victim))
    with pytest.raises(KeysLostError, match=f"positions {lost[0][0]} to") as caught:
        one.sharded.attend(query)
    assert caught.value.missing[0][0] == lost[0][0]

    answer = one.sharded.attend(query, partial=True)
    assert answer.missing == caught.value.missing
    seen = np.ones((1, KEYS), bool)
    for start, end in answer.missing:
        seen[:, start:end] = False
    expected = one.whole.attend(query, attend_mask=seen)
    np.testing.assert_allclose(answer.output, expected.output, rtol=0, atol=1e-6)
    # What sees none of them is answered as ever.
    options = {"causal": True, "query_offset": ranges[0].end - 1}
    assert one.sharded.attend(query, **options).missing == ()


def test_a_killed_server_is_started_anew(cluster, checked, kill):
    one = checked(replicas=2)
    victim = report(cluster, one.servers()[0])
    kill(victim)
    wait_until(lambda: victim.pid not in [node.pid for node in cluster.nodes()])
    wait_for_nodes(cluster, 4)
    one.attend()


@contextlib.contextmanager
def doubted_cluster(normal):
    """One server with a sequence, and doubt(): whether the map gives the server up.

    The map's own look at it fails, as where a connection is reset, and so do the first
    questions to the actor.
    """
    with (
        AttentionCluster(1, name="doubted", cpus=0) as cluster,
        cluster.sequence(heads=HEADS, width=WIDTH) as sequence,
    ):
        sequence.append(normal(HEADS, KEYS, WIDTH), normal(HEADS, KEYS, WIDTH))
        (node,) = cluster.nodes()

        def look(of, failures):
            answers, ask = watching.answers, moving.ask
            failing = [moving.RestartingError("unreachable")] * failures

            def ask_later(*arguments, **options):
                if arguments[1] == "serves" and failing:
                    raise failing.pop()
                return ask(*arguments, **options)

            watching.answers, moving.ask = (lambda *_: False), ask_later
            try:
                return of._watch.check(node.node)
            finally:
                watching.answers, moving.ask = answers, ask

        def doubt(failures=0):
            asked = cluster._map.__ray_call__.remote(look, failures)
            return ray.get(asked, timeout=60)

        yield cluster, sequence, doubt


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("failures", [0, 1])
def test_a_server_that_does_not_answer_once_keeps_its_keys(normal, failures):
    with doubted_cluster(normal) as (cluster, sequence, doubt):
        before = sequence.describe(), cluster.nodes()
        assert not doubt(failures)
        assert (sequence.describe(), cluster.nodes()) == before
        sequence.attend(normal(4, 1, WIDTH))


@pytest.mark.usefixtures("ray_cluster")
def test_a_server_that_its_actor_gives_up_leaves_no_memory_taken(normal):
    def fail(of):
        node_module.answers = lambda *_: False

    with doubted_cluster(normal) as (cluster, sequence, doubt):
        (before,) = cluster.nodes()
        assert before.held_bytes > 0
        actor, _ = before.node.rsplit(".", 1)
        actor = ray.get_actor(actor, namespace=moving.NAMESPACE)
        ray.get(actor.__ray_call__.remote(fail), timeout=60)
        assert doubt()
        wait_for_nodes(cluster, 1)
        (after,) = cluster.nodes()
        assert (after.node != before.node, after.held_bytes) == (True, 0)
        assert not psutil.pid_exists(before.pid)
        with pytest.raises(KeysLostError):
            sequence.attend(normal(4, 1, WIDTH))


def test_a_sequence_without_keys_gets_its_replicas_back(cluster, kill):
    wait_for_nodes(cluster, 4)
    with cluster.sequence(heads=HEADS, width=WIDTH, replicas=2) as sequence:
        victim = sequence.describe().ranges[0].replicas[0].node
        kill(report(cluster, victim))

        def is_whole():
            nodes = [r.node for r in sequence.describe().ranges[0].replicas]
            return victim not in nodes and len(nodes) == 2

        wait_until(is_whole)


FORM = {"heads": 1, "width": 64}  # 512 bytes a key


@contextlib.contextmanager
def small_cluster(nodes, name, normal):
    """Servers of 4 MiB each, and a sequence whose 2.5 MB are at two of them."""
    flags = {"worker_threads": 1, "resident_memory_limit": 4 << 20}
    with (
        AttentionCluster(nodes, name=name, cpus=0, flags=flags) as cluster,
        cluster.sequence(**FORM, replicas=2, range_keys=8192) as sequence,
    ):
        sequence.append(normal(1, 5000, 64), normal(1, 5000, 64))
        yield cluster, sequence


def lose(replica):
    """Kills the actor of its node, with which the server ends."""
    actor, _ = replica.node.rsplit(".", 1)
    ray.kill(ray.get_actor(actor, namespace=moving.NAMESPACE))


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
        # The first one of those that have none of its keys would be taken.
        first = next(
            node
            for node in cluster._ask("targets")
            if node not in [one.node for one in replicas]
        )
        with cluster._client(first).sequence(**FORM) as own:
            own.append(*rows)
            lose(replicas[1])
            wait_for_nodes(cluster, 3)
            wait_until(lambda: len(sequence.describe().ranges[0].replicas) == 2)
            nodes = [one.node for one in sequence.describe().ranges[0].replicas]
            assert first not in nodes


def test_a_range_moves_from_a_node_without_room_for_a_second_copy(ray_cluster, normal):
    with small_cluster(3, "half", normal) as (half, sequence):
        (part,) = sequence.describe().ranges
        lose(part.replicas[1])
        wait_for_nodes(half, 2)
        wait_until(lambda: len(sequence.describe().ranges[0].replicas) == 2)
        assert sequence.append(normal(1, 1, 64), normal(1, 1, 64)) == 5001


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


def held_by_map(cluster):
    """Of what comes and goes: locks by sequence, clients by target, and targets."""

    def asked(of):
        placement = of._placement
        return list(of._state._locks), list(placement._clients), of.targets()

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


def test_a_fork_that_fails_half_way_leaves_nothing(cluster, checked):
    one = checked(replicas=2)
    (first, *_) = one.sharded.describe().ranges
    second = first.replicas[1]
    cluster._client(second.node).delete_sequences([second.name])

    def held():
        clients = [cluster._client(report.node) for report in cluster.nodes()]
        return [len(list(client.sequences())) for client in clients]

    before = held(), cluster.sequences()
    # The last ranges are forked first, and the first replica of a range.
    with pytest.raises(NotFoundError, match=second.name):
        one.sharded.fork()
    assert (held(), cluster.sequences()) == before


def test_a_call_whose_time_is_up_is_an_error(cluster):
    # And not the end of the program, as for Ray.
    with cluster.sequence(heads=1, width=4) as sequence:
        for timeout in (0, -1):
            with pytest.raises(DeadlineExceededError):
                sequence.describe(timeout=timeout)


@pytest.mark.long  # a server has a minute for what it has begun
@pytest.mark.usefixtures("ray_cluster")
def test_a_cluster_whose_servers_hang_is_shut_down():
    hung = AttentionCluster(2, name="hung", cpus=0)
    pids = [node.pid for node in hung.nodes()]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        hung.shutdown()
        assert not any(psutil.pid_exists(pid) for pid in pids)
        # Its name is free.
        AttentionCluster(1, name="hung", cpus=0).shutdown()
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def ray_node(ray_cluster, wanted):
    return next(n for n in ray_cluster.worker_nodes if n.node_id == wanted.ray_node)


@pytest.mark.long
@pytest.mark.parametrize("call", CALLS)
def test_with_replicas_a_node_may_be_killed(
    ray_cluster, cluster, checked, running, call
):
    one = checked(replicas=2)
    victim = report(cluster, one.servers()[0])
    with running(getattr(one, call)) as calls:
        ray_cluster.remove_node(ray_node(ray_cluster, victim), allow_graceful=False)
        calls.wait_for(5)
    one.attend()
    wait_until(lambda: all(len(p.replicas) == 2 for p in one.sharded.describe().ranges))
    ray_cluster.add_node(num_cpus=1)
    wait_for_nodes(cluster, 3)
    cluster.add_nodes(1)
    one.attend()


@pytest.mark.long  # as long as Ray takes to see that a node is gone
def test_a_server_is_started_elsewhere_than_at_a_node_that_has_just_died(
    ray_cluster, cluster
):
    wait_for_nodes(cluster, 4)
    dead = ray_cluster.add_node(num_cpus=1)
    ray_cluster.remove_node(dead, allow_graceful=False)
    with ThreadPoolExecutor(1) as threads:
        # The only node with a processor to spare, as far as Ray knows.
        adding = threads.submit(cluster.add_nodes, 1)
        other = ray_cluster.add_node(num_cpus=1)
        (added,) = adding.result()
    assert added.ray_node == other.node_id
    cluster.drain(added.node)
    ray_cluster.remove_node(other)
