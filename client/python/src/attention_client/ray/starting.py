"""How a cluster starts and ends: the map's actor, by its name; servers on nodes."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attention_client.errors import (
    AlreadyExistsError,
    AttentionError,
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
)
from attention_client.ray import moving
from attention_client.ray.map import MapActor
from attention_client.ray.node import NodeActor, NodeReport

_MAP_MEMORY = 1 << 20  # bytes that Ray sets aside for the map's actor
_START = 120  # seconds that actors and servers may take to start
_END = 120  # and the map's actor to end
_NAME_PAUSE = 0.01  # seconds until Ray is asked again whether a name is free


def find_map(cluster: str) -> Any:
    """The actor of the map of the cluster of that name."""
    import ray

    try:
        return ray.get_actor(_map_name(cluster), namespace=moving.NAMESPACE)
    except ValueError:
        raise NotFoundError(f"name: there is no cluster {cluster!r}") from None


def start_map(cluster: str, connect: Mapping[str, Any], *, is_kept: bool) -> Any:
    """That actor, made anew."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    try:
        find_map(cluster)
    except NotFoundError:
        pass
    else:
        raise AlreadyExistsError(f"name: there is a cluster {cluster!r}")
    kind: Any = ray.remote(MapActor).options(
        name=_map_name(cluster),
        namespace=moving.NAMESPACE,
        lifetime="detached" if is_kept else None,
        max_restarts=-1,
        max_concurrency=64,
        num_cpus=0,
        # Beside the program that starts it, not at a node that comes and goes.
        # One that needs nothing is put anywhere by Ray, whatever that says.
        memory=_MAP_MEMORY,
        scheduling_strategy=NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        ),
    )
    return kind.remote(f"{cluster}.{os.urandom(4).hex()}", connect)


def end_map(cluster: str, actor: Any) -> None:
    """Until Ray has taken the name from it, which is after ray.kill() has returned."""
    import ray

    ray.kill(actor)
    end = time.monotonic() + _END
    while time.monotonic() < end:
        try:
            found = find_map(cluster)
        except NotFoundError:
            return
        if found._actor_id != actor._actor_id:
            return  # somebody else's by now
        time.sleep(_NAME_PAUSE)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of the servers that a cluster starts, as of AttentionCluster."""

    cpus: float
    memory: int | None
    listen: str
    flags: dict[str, Any]
    connect: dict[str, Any]
    is_kept: bool


class Starter:
    """Starts servers on nodes of Ray, by actors that live as long as it, or are kept.

    ask: asks the map, as Connections._ask().
    """

    def __init__(self, cluster: str, settings: Settings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._actors: list[Any] = []  # they live as long as their handles

    def check_addresses(self) -> None:
        import ray

        nodes_of: Any = ray.nodes
        addresses = {node["NodeManagerAddress"] for node in nodes_of() if node["Alive"]}
        if self._settings.listen == "127.0.0.1" and len(addresses) > 1:
            raise FailedPreconditionError(
                f"listen: '127.0.0.1', and Ray's nodes are at {sorted(addresses)} "
                "(expected listen='node', with flags and connect that say who may call "
                "the servers)"
            )

    def start(self, ask: Callable[..., Any], taken: Sequence[str]) -> NodeReport:
        """A server on a node that is none of those."""
        end = time.monotonic() + _START
        while True:
            try:
                return self._start(ask, taken)
            except moving.GoneError:
                # Ray chose a node that had died, and had not seen that yet.
                if time.monotonic() > end:
                    raise
                ask("nodes")  # an error where it is the map that has gone

    def _start(self, ask: Callable[..., Any], taken: Sequence[str]) -> NodeReport:
        import ray

        settings = self._settings
        needs = {"num_cpus": settings.cpus, "memory": settings.memory}
        name = f"{_map_name(self._cluster)}-node-{os.urandom(4).hex()}"
        kind: Any = ray.remote(NodeActor).options(
            name=name,
            namespace=moving.NAMESPACE,
            lifetime="detached" if settings.is_kept else None,
            max_concurrency=8,
            label_selector=(
                {"ray.io/node-id": f"!in({','.join(taken)})"} if taken else None
            ),
            **needs,
        )
        actor = kind.remote(name, settings.listen, settings.flags, settings.connect)
        try:
            report: NodeReport = ask("add_node", name, _START, timeout=None)
        except BaseException as error:
            # A map that was started anew may have taken it, and says so.
            if isinstance(error, moving.RestartingError) and _has(ask, name):
                self._actors.append(actor)
            else:
                ray.kill(actor)  # one that is kept would stay
            if not isinstance(error, DeadlineExceededError):
                raise
            raise FailedPreconditionError(
                f"nodes: Ray has started no server within {_START} s (expected a node "
                f"with {needs} to spare beside the {len(taken)} that have one)"
            ) from None
        self._actors.append(actor)
        return report


def _has(ask: Callable[..., Any], actor: str) -> bool:
    """Whether the map has the node of an actor, and says so."""
    try:
        return any(node.startswith(f"{actor}.") for node in ask("targets"))
    except AttentionError:
        return False


def _map_name(cluster: str) -> str:
    return f"attention-{cluster}"
