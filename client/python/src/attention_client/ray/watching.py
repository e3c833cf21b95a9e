"""The nodes of a cluster: they come, go, are looked at, and lose what they hold."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from attention_client.errors import (
    AttentionError,
    NotFoundError,
    ResourceExhaustedError,
)
from attention_client.ray import moving
from attention_client.ray.node import NodeReport, answers
from attention_client.ray.placing import Placing
from attention_client.ray.state import Node

_CHECK = 1.0  # seconds between two looks at every node
_REPORT = 30.0  # seconds that a node's report may take

_logger = logging.getLogger("attention_client.ray")


class Watching(Placing):
    """Nodes. By itself it gives ranges that have lost a replica another one."""

    def __init__(self, name: str, connect: Mapping[str, Any]) -> None:
        super().__init__(name, connect)
        self._pool = ThreadPoolExecutor(32)
        self._ended = threading.Event()
        self._rebuilding = threading.Event()
        self._rebuilding.set()  # after a restart there may be some
        for work in (self._watch, self._rebuild):
            threading.Thread(target=work, daemon=True).start()

    def add_node(self, actor: str, timeout: float) -> NodeReport:
        """Takes a node's actor, by its name, among those that hold keys."""
        report = self._report(actor, timeout)
        self._state.add_node(Node(report.node, actor, report.target, report.ray_node))
        self._rebuilding.set()
        return report

    def nodes(self) -> list[NodeReport]:
        """Of those that answer."""
        reports = self._reports()
        for node, report in reports:
            self._look_at(node, report)
        return [r for node, r in reports if r is not None and r.node == node.name]

    def targets(self) -> dict[str, str]:
        return {node.name: node.target for node in self._state.nodes()}

    def drain(self, name: str) -> None:
        """Moves all that a node holds to others, and lets it go."""
        node = self._state.node(name)
        self._state.set_draining(name)
        others = [n for n in self._state.usable() if n.name != name]
        if not others and any(m.keys_at(name) for m in self._state.sequences()):
            self._state.set_draining(name, draining=False)
            raise ResourceExhaustedError(
                f"node: {name!r} is the last one (expected another one that takes its "
                "keys: add_nodes() first)"
            )
        try:
            for known in self._state.sequences():
                self._move_from(known.name, name)
        except BaseException:
            self._state.set_draining(name, draining=False)
            raise
        self._state.remove_node(name)
        moving.stop(node.actor)

    def rebalance(self) -> int:
        """Moves ranges to nodes that have fewer of a sequence; how many."""
        moved = 0
        for known in self._state.sequences():
            moved += self._rebalance(known.name)
        return moved

    def _report(self, actor: str, timeout: float = _REPORT) -> NodeReport:
        report: NodeReport = moving.ask(actor, "report", timeout=timeout)
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

    def _check(self, name: str) -> bool:
        """Forgets a node whose server is gone; whether it was."""
        with contextlib.suppress(NotFoundError):
            node = self._state.node(name)
            if not answers(node.target, moving.plain(self._connect)):
                self._lose(node)
                return True
        return False

    def _lose(self, node: Node) -> None:
        _logger.warning("node %s is lost", node.name)
        if self._state.lose(node.name):
            self._rebuilding.set()
            self._start(lambda: self._revive(node))

    def _revive(self, node: Node) -> None:
        """A new server in its place, where the actor is still there."""
        while moving.is_alive(node.actor):
            try:
                self.add_node(node.actor, _REPORT)
                return
            except (AttentionError, OSError, RuntimeError) as error:
                _logger.warning("%s: %s", node.actor, error)
            if self._ended.wait(_CHECK):
                return

    def _watch(self) -> None:
        """Finds servers that are gone or started anew, and nodes that Ray drains."""
        while not self._ended.wait(_CHECK):
            for node, report in self._reports():
                if self._ended.is_set():
                    return
                self._look_at(node, report)

    def _look_at(self, node: Node, report: NodeReport | None) -> None:
        if report is None:
            if not moving.is_alive(node.actor):
                self._lose(node)
        elif report.node != node.name:
            self._lose(node)
        elif not node.is_draining and node.ray_node in moving.draining():
            self._start(lambda: self.drain(node.name))

    def _start(self, work: Callable[[], object]) -> None:
        def logged() -> None:
            try:
                work()
            except Exception:
                _logger.exception("background work failed")

        threading.Thread(target=logged, daemon=True).start()

    def _rebuild(self) -> None:
        """Gives ranges that have lost a replica another one."""
        while not self._ended.is_set():
            self._rebuilding.wait()
            self._rebuilding.clear()
            for known in self._state.sequences():
                try:
                    self._rebuild_sequence(known.name)
                except (AttentionError, OSError):
                    if not self._ended.is_set():
                        _logger.exception("sequence %s is not rebuilt", known.name)

    def _rebuild_sequence(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            while not self._ended.is_set():
                with self._changing(name) as known:
                    step = self._state.thin(known)
                    if step is None:
                        return
                    part, nodes = step
                    self._rehome(known, part, [*part.replicas, *nodes])
