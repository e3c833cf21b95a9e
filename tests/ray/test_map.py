"""The map's actor: where it is, and what is left when its node dies."""

import contextlib
import gc
import os
import signal
import threading

import numpy as np
import psutil
import pytest
import ray
from at_nodes import actor_of, asked
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from waiting import wait_for_nodes, wait_until

from attention_client import DeadlineExceededError, InvalidArgumentError
from attention_client.ray import AttentionCluster, moving

HEADS, WIDTH, KEYS = 2, 16, 700
MEMORY = 64 << 20  # that a server asks Ray for


@ray.remote(num_cpus=0)
def start(name):
    """What a program on a node does; the map is where that runs."""
    needs = {"cpus": 0, "memory": MEMORY}
    AttentionCluster(2, name=name, is_kept=True, **needs).close()


def home(cluster):
    """The map's node, and its process."""
    asked = cluster._map.__ray_call__.remote(
        lambda _: (ray.get_runtime_context().get_node_id(), os.getpid())
    )
    return ray.get(asked, timeout=60)


@contextlib.contextmanager
def cluster_of(node, name):
    """A cluster that was started by a program on that node of Ray's."""
    there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    ray.get(start.options(scheduling_strategy=there).remote(name))
    cluster = AttentionCluster.connect(name)
    try:
        yield cluster
    finally:
        cluster.shutdown()


def test_the_map_is_beside_the_program_that_starts_it(ray_cluster, cluster):
    assert home(cluster)[0] == ray_cluster.head_node.node_id


@pytest.mark.usefixtures("ray_cluster")
def test_a_name_is_free_once_its_cluster_has_ended(monkeypatch):
    cluster = AttentionCluster(1, name="again", cpus=0)
    get_actor, kill, killed = ray.get_actor, ray.kill, []

    def find(*arguments, **options):
        found = get_actor(*arguments, **options)
        for actor in killed:  # Ray is as slow as that
            kill(actor)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(ray, "kill", killed.append)
        patched.setattr(ray, "get_actor", find)
        cluster.shutdown()
    AttentionCluster(1, name="again", cpus=0).shutdown()


@pytest.mark.usefixtures("ray_cluster")
def test_a_cluster_whose_map_restarts_at_its_end_leaves_no_server(monkeypatch):
    with AttentionCluster(1, name="ended", cpus=0, is_kept=True) as cluster:
        (node,) = cluster.nodes()
        ask, asked = moving.ask_handle, []

        def restarting(*arguments):
            asked.append(arguments)
            if len(asked) == 1:
                raise moving.RestartingError("told to fail")
            return ask(*arguments)

        monkeypatch.setattr(moving, "ask_handle", restarting)
    wait_until(lambda: not psutil.pid_exists(node.pid))


def test_a_drain_that_ended_with_the_map_leaves_the_node_in_use(cluster):
    wait_for_nodes(cluster, 4)
    node = cluster.nodes()[0].node
    # What drain() does first.
    begun = cluster._map.__ray_call__.remote(
        lambda of, name: of._state.set_draining(name), node
    )
    ray.get(begun, timeout=60)
    form = {"heads": HEADS, "width": WIDTH, "replicas": 4}
    with pytest.raises(InvalidArgumentError, match="expected 1 to 3"):
        cluster.sequence(**form)
    ray.kill(cluster._map, no_restart=False)
    wait_for_nodes(cluster, 4)
    with cluster.sequence(**form) as sequence:
        assert len(sequence.describe().ranges[0].replicas) == 4


@contextlib.contextmanager
def held(cluster, name):
    """The map changes that sequence, as far as others can see."""

    def hold(of):
        with of._state.lock(name):
            of._held, of._is_over = True, threading.Event()
            of._is_over.wait(30)  # a call without a limit ends, too

    def asked(work):
        return ray.get(cluster._map.__ray_call__.remote(work), timeout=60)

    holding = cluster._map.__ray_call__.remote(hold)
    wait_until(lambda: asked(lambda of: getattr(of, "_held", False)))
    try:
        yield
    finally:
        asked(lambda of: of._is_over.set())
        ray.get(holding, timeout=60)


@pytest.mark.usefixtures("ray_cluster")
def test_a_sequence_that_is_changed_for_long_holds_up_no_rebuild_of_others():
    form = {"heads": HEADS, "width": WIDTH}

    def is_held(of):
        return not of._state.lock(name).acquire(blocking=False)

    with (
        AttentionCluster(3, name="busy", cpus=0) as cluster,
        cluster.sequence(**form) as changed,
        cluster.sequence(**form, replicas=2) as other,
        held(cluster, changed.name),
    ):
        name = changed.name
        _, second = other.describe().ranges[0].replicas
        ray.kill(actor_of(second.node))
        wait_until(lambda: second not in other.describe().ranges[0].replicas)
        wait_until(lambda: len(other.describe().ranges[0].replicas) == 2)
        assert asked(cluster._map, is_held)


@pytest.mark.usefixtures("ray_cluster")
def test_a_sequence_that_is_changed_is_looked_at_again_soon():
    def record(of):
        wait, of._pauses = of._watch._rebuilding.wait, []

        def recorded(pause):
            if pause is not None:
                of._pauses.append(pause)
            return wait(pause)

        of._watch._rebuilding.wait = recorded
        of._watch.rebuild()

    with (
        AttentionCluster(1, name="soon", cpus=0) as cluster,
        cluster.sequence(heads=HEADS, width=WIDTH) as one,
        held(cluster, one.name),
    ):
        asked(cluster._map, record)
        wait_until(lambda: len(asked(cluster._map, lambda of: of._pauses)) >= 3)
        assert set(asked(cluster._map, lambda of: of._pauses)) == {1}


@pytest.mark.usefixtures("ray_cluster")
def test_a_fork_that_nobody_waits_for_is_not_left():
    with AttentionCluster(1, name="forked", cpus=0) as one:
        sequence = one.sequence(heads=HEADS, width=WIDTH)

        def is_changing(name):
            has = one._map.__ray_call__.remote(lambda of: name in of._state._locks)
            return ray.get(has, timeout=60)

        with held(one, sequence.name), pytest.raises(DeadlineExceededError):
            sequence.fork(timeout=0.5)
        # The map has begun it, and does what it was asked for now.
        wait_until(lambda: not is_changing(sequence.name))
        assert one.sequences() == [sequence.name]


@pytest.mark.usefixtures("ray_cluster")
def test_a_node_whose_server_does_not_start_is_not_left():
    flags = {"no_such_flag": 1}
    with pytest.raises(RuntimeError, match="no-such-flag"):
        AttentionCluster(1, name="broken", cpus=0, flags=flags, is_kept=True)

    def left():
        named = ray.util.list_named_actors(all_namespaces=True)
        return [one for one in named if "broken" in one["name"]]

    wait_until(lambda: not left())


@ray.remote(num_cpus=0)
class Idle:
    def is_there(self):
        return True


def end_another(is_kept):
    """Until an actor that ends as a node's would has ended."""
    name = "another"
    actor = Idle.options(
        name=name,
        namespace=moving.NAMESPACE,
        lifetime="detached" if is_kept else None,
    ).remote()
    ray.get(actor.is_there.remote(), timeout=60)
    if is_kept:
        ray.kill(actor)
    del actor
    wait_until(lambda: not moving.is_alive(name))


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("is_kept", [False, True])
def test_a_node_that_a_map_has_when_it_starts_anew_is_kept(monkeypatch, is_kept):
    with AttentionCluster(1, name="anew", cpus=0, is_kept=is_kept) as cluster:
        ask = cluster._ask

        def restarting(method, *arguments, **options):
            answer = ask(method, *arguments, **options)
            if method == "add_node":
                raise moving.RestartingError("told to fail")
            return answer

        monkeypatch.setattr(cluster, "_ask", restarting)
        with pytest.raises(moving.RestartingError):
            cluster.add_nodes(1)
        gc.collect()  # the error's frames had a handle
        end_another(is_kept)  # an actor that was let go before has ended, too
        nodes = set(cluster._ask("targets"))
        assert len(nodes) == 2
        assert {report.node for report in cluster.nodes()} == nodes


def test_what_was_made_and_nobody_can_name_is_not_left(cluster, tmp_path, monkeypatch):
    before = cluster.sequences()
    ask = cluster._ask

    def lose(method, *arguments, **options):
        answer = ask(method, *arguments, **options)
        if method in ("create", "fork", "import_sequence"):
            raise KeyboardInterrupt
        return answer

    with cluster.sequence(heads=HEADS, width=WIDTH) as sequence:
        sequence.export(tmp_path)
        monkeypatch.setattr(cluster, "_ask", lose)
        for make in (
            lambda **name: cluster.sequence(heads=HEADS, width=WIDTH, **name),
            sequence.fork,
            lambda **name: cluster.import_sequence(tmp_path, **name),
        ):
            with pytest.raises(KeyboardInterrupt):
                make()
            assert cluster.sequences() == sorted([*before, sequence.name])
            with pytest.raises(KeyboardInterrupt):
                make(name="given")
            cluster.open_sequence("given").delete()


@pytest.mark.usefixtures("ray_cluster")
def test_calls_that_the_map_answers_end_with_the_clusters_timeout():
    # One of its own: what the map was asked for it may do later.
    with AttentionCluster(1, name="hurried", cpus=0, timeout=0.5) as hurried:
        sequence = hurried.sequence(heads=HEADS, width=WIDTH)
        calls = [
            sequence.describe,
            sequence.fork,
            lambda: sequence.truncate(0),
            sequence.delete,
        ]
        with held(hurried, sequence.name):
            for call in calls:
                with pytest.raises(DeadlineExceededError, match=r"within 0\.5 s"):
                    call()


@pytest.mark.long  # Ray takes a quarter of a minute to see that a node is gone
def test_the_map_comes_back_elsewhere_when_its_node_is_killed(
    ray_cluster, normal, running
):
    # Too small for a server: it has the map and nothing else.
    node = ray_cluster.add_node(
        num_cpus=0, memory=MEMORY // 2, object_store_memory=80 << 20
    )
    with cluster_of(node, "other") as cluster:
        where, process = home(cluster)
        assert where == node.node_id
        sequence = cluster.sequence(heads=HEADS, width=WIDTH, range_keys=64, replicas=2)
        sequence.append(normal(HEADS, KEYS, WIDTH), normal(HEADS, KEYS, WIDTH))
        query = normal(4, 2, WIDTH)
        expected = sequence.attend(query).output

        def attend():
            # By the map that this program has: nobody tells it another one.
            output = sequence.attend(query).output
            np.testing.assert_allclose(output, expected, rtol=0, atol=1e-6)

        before = sequence.describe()
        with running(attend) as calls:
            ray_cluster.remove_node(node, allow_graceful=False)
            # A machine that fails does not leave it a moment.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            calls.wait_for(20)
            assert cluster.sequences() == [sequence.name]
            calls.wait_for(20)
        assert home(cluster)[0] != node.node_id
        wait_for_nodes(cluster, 2)
        after = sequence.describe()
        assert after.lengths == before.lengths
        assert [part.start for part in after.ranges] == [
            part.start for part in before.ranges
        ]
        rows = normal(HEADS, 100, WIDTH), normal(HEADS, 100, WIDTH)
        assert sequence.append(*rows) == KEYS + 100
        with sequence.fork() as fork:
            assert len(fork) == KEYS + 100
        wait_until(
            lambda: all(len(p.replicas) == 2 for p in sequence.describe().ranges)
        )
