"""What nodes' actors and servers do, and what they hold."""

import contextlib
import threading

import ray

from attention_client.ray import moving


def asked(actor, work):
    """What work(object) returns in an actor's process."""
    return ray.get(actor.__ray_call__.remote(work), timeout=60)


def actor_of(node):
    """Of a node's name in the cluster."""
    return ray.get_actor(node.rsplit(".", 1)[0], namespace=moving.NAMESPACE)


@contextlib.contextmanager
def held_file(node, is_made=False):
    """The next file of a sequence that the node is asked for, by a copy or an export.

    It is made, or is_made: used, once the context has ended. Gives a condition: whether
    somebody waits for that.
    """

    def hold(of):
        of._is_waited_for, of._is_over = threading.Event(), threading.Event()
        exported = of._exported

        @contextlib.contextmanager
        def wait(source):
            of._exported = exported
            with contextlib.ExitStack() as made:
                file = made.enter_context(exported(source)) if is_made else None
                of._is_waited_for.set()
                of._is_over.wait(60)
                yield file or made.enter_context(exported(source))

        of._exported = wait

    actor = actor_of(node)
    asked(actor, hold)
    try:
        yield lambda: asked(actor, lambda of: of._is_waited_for.is_set())
    finally:
        with contextlib.suppress(ray.exceptions.RayActorError):  # it was drained
            asked(actor, lambda of: of._is_over.set())


@contextlib.contextmanager
def held_stops(cluster):
    """The map ends no node's actor until the context has ended."""

    def hold(of):
        from attention_client.ray import moving

        stop, of._may_stop = moving.stop, threading.Event()

        def wait(actor):
            of._may_stop.wait(60)
            moving.stop = stop
            stop(actor)

        moving.stop = wait

    asked(cluster._map, hold)
    try:
        yield
    finally:
        asked(cluster._map, lambda of: of._may_stop.set())


def names_at(cluster, sequence):
    """Of a sequence's ranges at the servers, node by node."""
    return {
        one.node: sorted(
            kept.name
            for kept in cluster._client(one.node).sequences()
            if kept.name.startswith(f"{sequence}@")
        )
        for one in cluster.nodes()
    }
