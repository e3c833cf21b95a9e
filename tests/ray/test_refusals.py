"""What a sequence over several servers, and a cluster, refuse."""

import functools

import numpy as np
import pytest
from compared import HEADS, KEYS, WIDTH

from attention_client import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    ParameterSet,
    ResourceExhaustedError,
)
from attention_client.ray import AttentionCluster


@pytest.mark.parametrize(
    "options",
    [
        {"weights": True},
        {"top_k": 3},
        {"lse": "no"},
        {"query_starts": np.array([0, 1])},
        {"key_scale": np.ones((HEADS, KEYS), np.float32)},
        {"training": True, "dropout_p": 0.5},
        {"empty_rows": "uniform"},
        {"scoring": ParameterSet("x")},
        {"valid_lens": [KEYS + 1]},
        {"valid_lens": [299.5]},
        {"bias": np.zeros((1, 7), np.float32)},
        {"causal": "bottom_right", "query_offset": 1},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_parts_cannot_answer_is_refused(both, normal, options):
    sharded, _ = both
    with pytest.raises(InvalidArgumentError):
        sharded.attend(normal(4, 1, WIDTH), **options)


@pytest.mark.parametrize("shape", [(), (5,), (1, 1), (1, 4), (2, 5), (1, 5, 1)])
def test_lengths_of_another_shape_are_refused_as_by_one_server(both, normal, shape):
    messages = []
    for one in both:
        with pytest.raises(InvalidArgumentError) as caught:
            one.attend(normal(4, 5, WIDTH), valid_lens=np.full(shape, 300))
        messages.append(str(caught.value))
        assert caught.value.field == "valid_lens"
    assert messages[0] == messages[1].removesuffix(" (in entry 0 of the batch)")


def test_what_does_not_fit_the_cluster_is_refused(cluster):
    with pytest.raises(InvalidArgumentError, match="replicas: 5"):
        cluster.sequence(heads=1, width=1, replicas=5)
    with pytest.raises(AlreadyExistsError, match="a cluster"):
        AttentionCluster(1)
    with pytest.raises(NotFoundError, match="no cluster"):
        AttentionCluster.connect("another")
    with pytest.raises(NotFoundError, match="node: 'nobody'"):
        cluster.drain("nobody")
    with cluster.sequence(heads=1, width=1, name="mine") as one:
        with pytest.raises(AlreadyExistsError, match="mine"):
            cluster.sequence(heads=1, width=1, name="mine")
        assert one.name == "mine"


@pytest.mark.parametrize("name", ["", "a@b", "x" * 201])
def test_a_name_is_refused_for_a_fork_as_for_a_sequence(cluster, name):
    new = functools.partial(cluster.sequence, heads=1, width=1)
    with new() as one:
        for make in (new, one.fork):
            with pytest.raises(InvalidArgumentError, match="expected 1 to 200 letters"):
                make(name=name)


def test_the_last_node_is_not_drained(ray_cluster, normal):
    ray_cluster.add_node(num_cpus=1, resources={"own": 1})
    with (
        AttentionCluster(1, name="small", flags={"worker_threads": 1}) as small,
        small.sequence(heads=1, width=4) as one,
    ):
        one.append(normal(5, 4), normal(5, 4))
        with pytest.raises(ResourceExhaustedError, match="the last one"):
            small.drain(small.nodes()[0].node)
        assert one.attend(normal(1, 4)).output.shape == (1, 4)
