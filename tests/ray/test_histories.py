"""Every answer fits some legal order of all that was done, whatever dies meanwhile."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from recorded import Recorded
from waiting import wait_for_nodes, wait_until

QUICK, LONG = 2, 12  # rounds, each with something that dies or goes


def at_full_strength(one):
    """Every range has both of its replicas: one more server may go."""
    handle = one._cluster.open_sequence(one.sequence.name)
    wait_until(lambda: all(len(p.replicas) == 2 for p in handle.describe().ranges))


@pytest.fixture
def played(cluster, running):
    """played(disturb, rounds): checks a history amid disturb(number, Recorded)."""

    def play(disturb, rounds):
        one = Recorded(cluster, replicas=2, seed=1)
        calls = [one.append, one.rival(), one.reader(), one.reader(), one.fork]
        with contextlib.ExitStack() as stack:
            threads = [stack.enter_context(running(call)) for call in calls]
            for number in range(rounds):
                disturb(number, one)
                for thread in threads:
                    thread.wait_for(3)
                at_full_strength(one)
        operations = one.check()
        one.sequence.delete()
        return operations

    return play


def busiest(cluster, one):
    """The report of the node with the most of the sequence."""
    known = cluster.open_sequence(one.sequence.name).describe()
    nodes = [r.node for part in known.ranges for r in part.replicas]
    return next(
        report
        for report in cluster.nodes()
        if report.node == max(nodes, key=nodes.count)
    )


@pytest.mark.parametrize("rounds", [QUICK, pytest.param(LONG, marks=pytest.mark.long)])
def test_servers_are_killed(cluster, played, kill, rounds):
    def disturb(_, one):
        kill(busiest(cluster, one))

    assert played(disturb, rounds) > 100
    wait_for_nodes(cluster, 4)


@pytest.mark.parametrize("rounds", [QUICK, pytest.param(LONG, marks=pytest.mark.long)])
def test_nodes_come_and_go(cluster, played, rounds):
    def disturb(_, one):
        cluster.drain(busiest(cluster, one).node)
        cluster.add_nodes(1)

    assert played(disturb, rounds) > 100


@pytest.mark.parametrize("rounds", [QUICK, pytest.param(LONG, marks=pytest.mark.long)])
def test_servers_are_killed_while_a_node_is_drained(cluster, played, kill, rounds):
    def disturb(_, one):
        drained = busiest(cluster, one).node
        known = cluster.open_sequence(one.sequence.name).describe()
        holders = {r.node for part in known.ranges for r in part.replicas} - {drained}
        killed = next(r for r in cluster.nodes() if r.node in holders)
        with ThreadPoolExecutor(1) as pool:
            drain = pool.submit(cluster.drain, drained)
            kill(killed)
            drain.result()
        wait_for_nodes(cluster, 3)
        cluster.add_nodes(1)

    assert played(disturb, rounds) > 100
    wait_for_nodes(cluster, 4)


@pytest.mark.long
def test_nodes_are_killed(ray_cluster, cluster, played):
    def disturb(_, one):
        victim = busiest(cluster, one).ray_node
        node = next(n for n in ray_cluster.worker_nodes if n.node_id == victim)
        ray_cluster.remove_node(node, allow_graceful=False)
        ray_cluster.add_node(num_cpus=1)
        wait_for_nodes(cluster, 3)
        cluster.add_nodes(1)

    assert played(disturb, LONG) > 100
