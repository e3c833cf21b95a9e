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


@contextlib.contextmanager
def lost_range(cluster, normal, kill):
    """A sequence whose first range is lost, all that it has."""
    wait_for_nodes(cluster, 4)
    rows = normal(HEADS, 10, WIDTH), normal(HEADS, 10, WIDTH)
    with cluster.sequence(heads=HEADS, width=WIDTH, range_keys=64) as sequence:
        sequence.append(*rows)
        (replica,) = sequence.describe().ranges[0].replicas
        kill(report(cluster, replica.node))
        wait_until(lambda: sequence.describe().missing == ((0, 64),))
        yield sequence, rows


def test_a_sequence_without_what_is_lost_begins_anew(cluster, normal, kill):
    with lost_range(cluster, normal, kill) as (sequence, rows):
        with sequence.fork(length=0) as fork:
            assert fork.append(*rows) == 10
        sequence.truncate(0)
        assert sequence.append(*rows) == 10
        assert sequence.describe().lengths == (10,)


def test_what_has_lost_all_keys_answers_as_if_rows_saw_none(cluster, normal, kill):
    with lost_range(cluster, normal, kill) as (sequence, _):
        sequence._lengths[0] = 10  # describe() counts the range as full
        query, sinks = normal(4, 2, WIDTH), normal(4)
        with pytest.raises(KeysLostError) as caught:
            sequence.attend(query)
        assert caught.value.missing == ((0, 10),)
        options = {"lse": True, "sinks": sinks}
        answer = sequence.attend(query, partial=True, **options)
        assert (answer.missing, answer.servers) == (((0, 10),), 0)
        with cluster.sequence(heads=HEADS, width=WIDTH) as empty:
            expected = empty.attend(query, **options)
        np.testing.assert_array_equal(answer.output, expected.output)
        np.testing.assert_array_equal(answer.lse, expected.lse)


def test_a_length_amid_lost_keys_is_refused(cluster, normal, kill):
    with lost_range(cluster, normal, kill) as (sequence, _):
        with pytest.raises(KeysLostError, match="positions 0 to 63"):
            sequence.truncate(10)
        with pytest.raises(KeysLostError, match="positions 0 to 63"):
            sequence.fork(length=10)


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
