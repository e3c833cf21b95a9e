"""What the map does by itself: it finds lost servers, and restores replicas."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from attention_client.errors import (
    AttentionError,
    DeadlineExceededError,
    NotFoundError,
)
from attention_client.ray import moving
from attention_client.ray.figures import Figures
from attention_client.ray.node import NodeReport, answers
from attention_client.ray.placing import Placement
from attention_client.ray.replicas import Replicas
from attention_client.ray.state import Node, State

_CHECK = 1.0  # seconds between two looks at every node
_REPORT = 30.0  # seconds that a node's report may take
_SERVES = 12.0  # and its word that its server serves
_ASKED = 3  # times, where Ray does not reach its actor
_LATE = 10.0  # seconds until a server that no call has waited for is asked again
_RETRY = 60.0  # seconds, at most, until a rebuild that failed is tried again
_SWEEP = 60.0  # seconds between two sweeps of all nodes

_logger = logging.getLogger("attention_client.ray")


class Watch:
    """Threads that run until ended is set.

    connect: how servers are called, as of Client. drain: called with the name of a
    node that Ray drains.
    """

    def __init__(
        self,
        state: State,
        replicas: Replicas,
        placement: Placement,
        connect: Mapping[str, Any],
        ended: threading.Event,
        drain: Callable[[str], None],
        figures: Figures,
    ) -> None:
        self._state = state
        self._replicas = replicas
        self._placement = placement
        self._connect = moving.plain(connect)
        self._ended = ended
        self._drain = drain
        self._figures = figures
        self._pool = ThreadPoolExecutor(32)
        self._rebuilding = threading.Event()
        self._rebuilding.set()  # after a restart there may be some
        for work in (self._watch, self._rebuild, self._sweep):
            threading.Thread(target=work, daemon=True).start()
        for node in state.lost():  # before a restart
            self._start(f"reviving {node.name}", self._revive, node)
        for node in state.leaving():
            self._start(f"ending {node.name}", self.let_go, node)

    def add_node(
        self, actor: str, timeout: float = _REPORT, gone: str | None = None
    ) -> NodeReport:
        """Takes a node's actor, by its name, among those that hold keys.

        gone: as of NodeActor.report().
        """
        report = self._report(actor, timeout, gone)
        self._state.add_node(Node(report.node, actor, report.target, report.ray_node))
        self._rebuilding.set()
        return report

    def nodes(self) -> list[NodeReport]:
        """Of those that answer; the others are looked at."""
        reports = self._reports()
        for node, report in reports:
            self._look_at(node, report)
        return [r for node, r in reports if r is not None and r.node == node.name]

    def let_go(self, node: Node) -> None:
        """Ends the actor of a node that is leaving; a restart goes on with it."""
        moving.stop(node.actor)
        self._state.forget_leaving(node.name)

    def rebuild(self) -> None:
        """Looks for ranges that lack a replica, in the background."""
        self._rebuilding.set()

    def end(self) -> None:
        """Lets threads see that ended is set."""
        self._rebuilding.set()

    def check(self, name: str, *, is_suspect: bool = True) -> bool | None:
        """Forgets a node whose server is gone; whether it is; None: it is silent.

        is_suspect: a call has waited for it already, so that its silence is no chance,
        and it is gone.
        """
        try:
            node = self._state.node(name)
        except NotFoundError:
            return True  # forgotten already
        said = answers(node.target, self._connect)
        if said or self._serves(node, is_silent=said is None):
            return False
        if said is None and not is_suspect:
            return None
        self._lose(node)
        return True

    def check_all(self, failed: str | None) -> None:
        """Forgets all nodes whose servers are gone, since a call has failed.

        failed: target of its server; None: unknown. Others may be silent by chance for
        a while, and have the only keys: they are asked again, and that alone where
        nothing else says why the call has failed.
        """
        nodes = self._state.nodes()
        silent = [
            node
            for node in nodes
            if self.check(node.name, is_suspect=node.target == failed) is None
        ]
        is_lost = not {node.name for node in nodes} <= self._state.node_names()
        is_explained = is_lost or failed is not None
        if silent and not is_explained and not self._ended.wait(_LATE):
            for node in silent:
                self.check(node.name)

    def _serves(self, node: Node, *, is_silent: bool) -> bool:
        """Whether its actor says so: what has not answered once may have its keys.

        is_silent: whether its server has said nothing. Where the actor does not either,
        their machine is gone, whatever Ray thinks of it yet.
        """
        for _ in range(_ASKED):
            try:
                return bool(
                    moving.ask(node.actor, "serves", node.name, timeout=_SERVES)
                )
            except DeadlineExceededError:
                return not is_silent  # alone, an actor that is slow is not gone
            except (AttentionError, OSError, RuntimeError) as error:
                _logger.warning("%s: %s", node.name, error)
                # The network may have failed for the server and its actor alike.
                if not isinstance(error, moving.RestartingError):
                    return False
            if self._ended.wait(_CHECK):
                return False
        return False

    def _report(
        self, actor: str, timeout: float = _REPORT, gone: str | None = None
    ) -> NodeReport:
        report: NodeReport = moving.ask(actor, "report", gone, timeout=timeout)
        self._state.rooms.set(report.node, report.memory_limit - report.held_bytes)
        return report

    def _reports(self) -> list[tuple[Node, NodeReport | None]]:
        def one(node: Node) -> NodeReport | None:
            try:
                return self._report(node.actor)
            except (AttentionError, OSError, RuntimeError) as error:
                _logger.warning("%s: %s", node.name, error)
                return None

        nodes = self._state.nodes()
        return list(zip(nodes, self._pool.map(one, nodes), strict=True))

    def _lose(self, node: Node) -> None:
        _logger.warning("node %s is lost", node.name)
        if self._state.lose(node.name):
            self._replicas.forget(node)
            self._rebuilding.set()
            self._start(f"reviving {node.name}", self._revive, node)

    def _revive(self, node: Node) -> None:
        """A new server in its place, where the actor is still there."""
        while moving.is_alive(node.actor):
            try:
                self.add_node(node.actor, gone=node.name)
                break
            except (AttentionError, OSError, RuntimeError) as error:
                _logger.warning("%s: %s", node.actor, error)
            if self._ended.wait(_CHECK):
                return
        self._state.forget_lost(node.name)

    def _watch(self) -> None:
        """Finds servers that are gone or started anew, and nodes that Ray drains."""
        while not self._ended.wait(_CHECK):
            self._logged("looking at the nodes", self._look_at_all)

    def _look_at_all(self) -> None:
        for node, report in self._reports():
            if self._ended.is_set():
                return
            self._look_at(node, report)
        self._figures.set(len(self._state.nodes()), self._state.sequences())

    def _look_at(self, node: Node, report: NodeReport | None) -> None:
        if report is None:
            if not moving.is_alive(node.actor):
                self._lose(node)
        elif report.node != node.name:
            self._lose(node)
        elif not node.is_draining and node.ray_node in moving.draining():
            self._start(f"draining {node.name}", self._drain_for_ray, node.name)

    def _drain_for_ray(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):  # Ray's node has ended meanwhile
            self._drain(name)

    def _start(self, what: str, work: Callable[..., object], *arguments: Any) -> None:
        told = (what, work, *arguments)
        threading.Thread(target=self._logged, args=told, daemon=True).start()

    def _logged(self, what: str, work: Callable[..., object], *arguments: Any) -> bool:
        """Whether it worked. No thread ends by what befalls a node or a sequence."""
        try:
            work(*arguments)
        except Exception:
            if not self._ended.is_set():
                _logger.exception("%s failed", what)
            return False
        return True

    def _rebuild(self) -> None:
        """Gives ranges that have lost a replica another one.

        Where that fails it is tried again: there may be room by then.
        """
        pause: float | None = None
        busy: list[str] = []
        while not self._ended.is_set():
            self._rebuilding.wait(pause)
            self._rebuilding.clear()
            busy.clear()
            done = [
                self._logged(
                    f"rebuilding sequence {known.name}",
                    self._rebuild_one,
                    known.name,
                    busy,
                )
                for known in self._state.sequences()
            ]
            longer = min(_RETRY, 2 * pause) if pause else _CHECK
            pause = _CHECK if busy else None if all(done) else longer

    def _rebuild_one(self, name: str, busy: list[str]) -> None:
        try:
            self._placement.rebuild(name)
        except DeadlineExceededError as error:  # nothing has failed
            _logger.warning("sequence %s is to be rebuilt later: %s", name, error)
            busy.append(name)

    def _sweep(self) -> None:
        """Deletes at the servers what nobody names any more.

        At once after a restart; and later, for what servers were still doing then.
        """
        while True:
            for node in self._state.nodes():
                what = f"sweeping {node.name}"
                self._logged(what, self._replicas.sweep, node.name)
            if self._ended.wait(_SWEEP):
                return
