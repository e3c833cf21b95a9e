"""What a map that ends amid a change leaves at nodes, and sweeps delete."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
from at_nodes import asked, held_file, names_at
from checked import HEADS, WIDTH
from waiting import wait_for_nodes, wait_until

from attention_client import DeadlineExceededError, UnavailableError


@pytest.fixture
def sequence(cluster, normal):
    wait_for_nodes(cluster, 4)
    with cluster.sequence(heads=HEADS, width=WIDTH) as made:
        made.append(normal(HEADS, 5, WIDTH), normal(HEADS, 5, WIDTH))
        yield made


def is_what_nodes_have(cluster, sequence):
    """Whether it is just what the map names."""
    ranges = sequence.describe().ranges
    named = {one.node: [] for one in cluster.nodes()}
    for part in ranges:
        for replica in part.replicas:
            named.setdefault(replica.node, []).append(replica.name)
    return names_at(cluster, sequence.name) == {
        n: sorted(names) for n, names in named.items()
    }


def test_a_map_that_ends_amid_a_move_leaves_no_copy(cluster, sequence):
    node = sequence.describe().ranges[0].replicas[0].node
    with ThreadPoolExecutor(1) as threads, held_file(node) as is_copying:
        draining = threads.submit(cluster.drain, node)
        wait_until(is_copying)
        assert sum(map(len, names_at(cluster, sequence.name).values())) == 2
        ray.kill(cluster._map, no_restart=False)
        with pytest.raises(UnavailableError):
            draining.result()
        wait_until(lambda: is_what_nodes_have(cluster, sequence))
    assert sequence.describe().lengths == (5,)


def test_a_map_that_ends_amid_a_delete_leaves_nothing(cluster, sequence):
    # What delete() does first.
    name = sequence.name
    asked(cluster._map, lambda of: of._state.remove(name))
    assert any(names_at(cluster, name).values())
    ray.kill(cluster._map, no_restart=False)
    wait_until(lambda: not any(names_at(cluster, name).values()))


def test_what_is_being_made_is_not_swept(cluster, sequence):
    node = sequence.describe().ranges[0].replicas[0].node
    with ThreadPoolExecutor(1) as threads, held_file(node) as is_copying:
        draining = threads.submit(cluster.drain, node)
        wait_until(is_copying)
        made = names_at(cluster, sequence.name)

        def sweep(of):
            for one in of._state.nodes():
                of._replicas.sweep(one.name)

        asked(cluster._map, sweep)
        assert names_at(cluster, sequence.name) == made
    draining.result()
    assert sequence.describe().lengths == (5,)
    cluster.add_nodes(1)


def test_what_a_server_did_not_answer_to_is_deleted_later(cluster, sequence):
    (replica,) = sequence.describe().ranges[0].replicas
    name = sequence.name

    def delete(of):
        client = of._replicas.client(replica.node)

        def fail(_):
            raise DeadlineExceededError("told to fail")

        client.delete_sequences = fail
        of.delete(name)
        del client.delete_sequences

    asked(cluster._map, delete)
    assert any(names_at(cluster, name).values())
    asked(cluster._map, lambda of: of._replicas.sweep(replica.node))
    assert not any(names_at(cluster, name).values())
