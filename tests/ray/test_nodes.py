"""Servers and nodes that die, go and come, amid calls."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import ray
from ray._raylet import GcsClient
from waiting import wait_for_nodes, wait_until

from attention_client import (
    DeadlineExceededError,
    KeysLostError,
    NotFoundError,
    UnavailableError,
)
from attention_client.ray import moving

HEADS, WIDTH, KEYS = 2, 16, 700


class Checked:
    """A sequence over the cluster, and the same keys at one server."""

    def __init__(self, cluster, one_server, normal, replicas):
        form = {"heads": HEADS, "width": WIDTH}
        self.sharded = cluster.sequence(**form, range_keys=64, replicas=replicas)
        self.whole = one_server.sequence(**form)
        self._cluster = cluster
        self._normal = normal
        self.append(KEYS)

    def rows(self, count):
        return self._normal(HEADS, count, WIDTH), self._normal(HEADS, count, WIDTH)

    def append(self, count=1):
        rows = self.rows(count)
        assert self.sharded.append(*rows) == self.whole.append(*rows)

    def attend(self):
        self._same(self.sharded, self._normal(4, 2, WIDTH), causal="bottom_right")

    def step(self):
        options = {"append": self.rows(1), "causal": "bottom_right"}
        self._same(self.sharded, self._normal(4, 1, WIDTH), **options)

    def fork(self):
        made = []

        def is_made():
            # The map may be at the node that was killed: it is asked again.
            with contextlib.suppress(UnavailableError):
                made.append(self.sharded.fork())
            return bool(made)

        wait_until(is_made)
        with made[0] as fork:
            assert len(fork) == len(self.whole)
            self._same(fork, self._normal(4, 2, WIDTH))

    def _same(self, sharded, query, **options):
        answer = sharded.attend(query, **options)
        expected = self.whole.attend(query, **options)
        np.testing.assert_allclose(answer.output, expected.output, rtol=0, atol=1e-6)

    def servers(self):
        """Nodes by how many keys they have, the most first."""
        # By another handle: this one's lengths are a running call's.
        known = self._cluster.open_sequence(self.sharded.name).describe()
        count = {}
        for part in known.ranges:
            for replica in part.replicas:
                count[replica.node] = count.get(replica.node, 0) + part.capacity
        return sorted(count, key=count.get, reverse=True)

    def end(self):
        self.sharded.delete()
        self.whole.delete()


@pytest.fixture
def checked(cluster, one_server, normal):
    """checked(replicas)"""
    made = []

    def make(replicas):
        wait_for_nodes(cluster, 4)
        made.append(Checked(cluster, one_server, normal, replicas))
        return made[-1]

    yield make
    for one in made:
        one.end()


def report(cluster, node):
    return next(one for one in cluster.nodes() if one.node == node)


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


def test_the_map_is_found_again(cluster, checked):
    one = checked(replicas=1)
    before = one.sharded.describe()
    ray.kill(cluster._map, no_restart=False)
    wait_for_nodes(cluster, 4)
    after = one.sharded.describe()
    assert after.ranges == before.ranges
    one.step()


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


def test_a_range_that_is_closed_twice_keeps_its_count(cluster, checked):
    one = checked(replicas=1)
    tail = one.sharded.describe().ranges[-1]
    client = cluster._client(tail.replicas[0].node)
    counts, is_open = moving.close([(client, tail.replicas[0])], one.sharded._map, tail)
    assert is_open
    assert counts == [KEYS - tail.start]
    again = moving.close([(client, tail.replicas[0])], one.sharded._map, tail)
    assert again == (counts, True)
    one.attend()  # the mark is not seen


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
