"""A call of a ShardedSequence: which servers it asks for what."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from attention_client import _channel, _sequence_calls, _sequence_tensors
from attention_client._reply import Piece
from attention_client.client import Client
from attention_client.errors import (
    AbortedError,
    AttentionError,
    CancelledError,
    NotFoundError,
    OutOfRangeError,
    UnavailableError,
)
from attention_client.ray import fanout, hedging, tree
from attention_client.ray.attempts import (
    LongerError,
    NewKeys,
    RefusedError,
    StaleError,
    lost,
)
from attention_client.ray.ranges import Range, Replica, SequenceMap, joined

if TYPE_CHECKING:
    from attention_client.ray.cluster import AttentionCluster

# Bytes of queries, and of outputs, in one call, where it has several ranges: a quarter
# of what servers take unless they are told otherwise.
_MOST = 64 << 20
# What a server says that has gone, or has no longer what the map says.
_STALE = (UnavailableError, NotFoundError, AbortedError, CancelledError)


@dataclasses.dataclass(frozen=True)
class Answer:
    """Of all servers."""

    result: Piece  # (1, Hq, Lq, Dv)
    missing: tuple[tuple[int, int], ...]  # positions whose keys are lost
    servers: int  # that have answered


@dataclasses.dataclass(frozen=True)
class Asking:
    """One attempt, by one map. Raises StaleError where that is out of date."""

    cluster: AttentionCluster
    known: SequenceMap
    layer: int
    left: Callable[[], float]
    metadata: _channel.Metadata | None
    in_tree: bool  # where there are many servers

    def _client(self, node: str) -> Client:
        try:
            return self.cluster._client(node, self.left())
        except NotFoundError as error:
            # Whoever knows that the node has gone has a newer map.
            raise StaleError(error, [], in_tree=False) from None

    def append(self, rows: NewKeys) -> None:
        """To every replica of the ranges that they belong to.

        To one range after the other, so that keys never have a gap before them: not for
        who reads meanwhile, and not where this program dies on the way.
        """
        self.check_no_gap(rows)
        for part in self.known.ranges:
            if rows.belongs(part):
                with rows.going_to(part):
                    self._append_at(part, part.replicas, rows)

    def attend(
        self, question: fanout.Question, rows: NewKeys | None, partial: bool
    ) -> Answer:
        """The answers of all that have keys which some row sees, merged."""
        while True:
            try:
                return self._attend(question, rows, partial)
            except LongerError as longer:
                before = dict(question.held)
                self._count(question, longer.replicas)
                if question.held == before:
                    raise longer.error from None

    def _count(self, question: fanout.Question, replicas: tuple[Replica, ...]) -> None:
        """How many keys these have, for masks and biases with a column for each."""
        for part in self.known.ranges:
            for replica in part.replicas:
                if replica in replicas:
                    steps = _sequence_calls.describe(replica.name)
                    client = self._client(replica.node)
                    call = fanout.Call(client, (replica,), steps)
                    self._run([call])
                    question.held[part.start] = call.outcome.lengths[self.layer]

    def _attend(
        self, question: fanout.Question, rows: NewKeys | None, partial: bool
    ) -> Answer:
        tail = None if rows is None else self._appended(rows)
        parts = [part for part in self.known.ranges if question.sees(part)]
        missing = joined(
            (part.start, part.start + part.count(question.length))
            for part in parts
            if not part.replicas
        )
        if missing and not partial:
            raise lost(self.known.name, missing)
        calls = self._questions(parts, question, tail)
        if tail is not None and rows is not None:
            arrays, start = rows.cut(tail)
            steps = fanout.attend_appended(
                question,
                (tail, tail.replicas[0]),
                self.layer,
                arrays,
                start,
                has_sinks=not calls,
            )
            client = self._client(tail.replicas[0].node)
            calls.append(fanout.Call(client, (tail.replicas[0],), steps))
        if tail is None or rows is None:
            self._run(calls)
        else:
            with rows.going_to(tail):
                self._run(calls)
                self._append_at(tail, tail.replicas[1:], rows)
        nodes = {replica.node for call in calls for replica in call.replicas}
        if calls:
            merged = fanout.merge([call.outcome for call in calls])
        else:  # all ranges are lost
            merged = question.without_keys(self.known.form)
        return Answer(merged, missing, len(nodes))

    def _appended(self, rows: NewKeys) -> Range | None:
        """The range whose first replica appends and answers in one call."""
        taking = [part for part in self.known.ranges if rows.belongs(part)]
        if len(taking) == 1 and taking[0].replicas:
            self.check_no_gap(rows)
            return taking[0]
        # They go to several servers: first there, then all are asked.
        self.append(rows)
        return None

    def check_no_gap(self, rows: NewKeys) -> None:
        """Where they begin a range: its server does not know of the one before it.

        Also where they need a new range, before the map has it.
        """

        def gap() -> StaleError:
            error = OutOfRangeError(
                f"position: {rows.position} leaves a gap, there is no key at "
                f"{rows.position - 1}"
            )
            return StaleError(error, [], in_tree=False)

        if rows.position > self.known.end:
            raise gap()
        is_new = rows.end > self.known.end
        for part in self.known.ranges:
            is_before = is_new and part.start < rows.position < part.end
            if not (is_before or part.end == rows.position) or not part.replicas:
                continue
            last = part.replicas[-1]  # the others have what it has
            client = self._client(last.node)
            call = fanout.Call(client, (last,), _sequence_calls.describe(last.name))
            self._run([call])
            count = call.outcome.lengths[self.layer]
            # More than it takes: it is moved, and has a mark behind its keys.
            if count < rows.position - part.start or count > part.capacity:
                raise gap()

    def _append_at(
        self, part: Range, replicas: tuple[Replica, ...], rows: NewKeys
    ) -> None:
        """Appends the rows that belong to a range, at its replicas one by one.

        In the order of the map, each once the one before it has them: the first one
        decides between programs that append at one position. So what a replica has,
        those before it have, too; the others may be behind, and never differ.
        """
        if not part.replicas:
            raise lost(self.known.name, [(part.start, part.end)])
        arrays, start = rows.cut(part)
        key, value = (
            (arrays[name], arrays[f"{name}_scale"])
            if f"{name}_scale" in arrays
            else arrays[name]
            for name in ("key", "value")
        )
        for replica in replicas:
            steps = _sequence_tensors.append(
                fanout.known(self.known.form, replica), key, value, self.layer, start
            )
            client = self._client(replica.node)
            is_first = replica == part.replicas[0]
            self._run([fanout.Call(client, (replica,), steps)], is_first=is_first)

    def _questions(
        self, parts: list[Range], question: fanout.Question, tail: Range | None
    ) -> list[fanout.Call]:
        """A call for each server that has some of the ranges, the tail apart."""
        live = [part for part in parts if part.replicas and part is not tail]
        if not live and tail is None:
            # No row sees a key: one server says what that gives.
            live = [part for part in self.known.ranges if part.replicas][:1]
        load: dict[str, int] = {}
        if tail is not None:
            load[tail.replicas[0].node] = tail.count(question.length)
        chosen = []
        for part in live:
            replica = min(part.replicas, key=lambda one: load.get(one.node, 0))
            load[replica.node] = load.get(replica.node, 0) + part.capacity
            chosen.append((part, replica))
        if self.in_tree and self.cluster._trees.is_for(len(load)):
            return self._tree_calls(question, chosen)
        return self._calls(question, chosen, has_sinks=True, is_hedged=True)

    def _tree_calls(
        self, question: fanout.Question, chosen: Sequence[tuple[Range, Replica]]
    ) -> list[fanout.Call]:
        """One for each of few servers, which ask the others."""
        by_node: dict[str, list[tuple[Range, Replica]]] = {}
        for part, replica in chosen:
            by_node.setdefault(replica.node, []).append((part, replica))
        calls: list[fanout.Call] = []
        for nodes in tree.groups(list(by_node)):
            targets = {self._client(node).target: node for node in nodes}
            batch = [one for node in nodes for one in by_node[node]]
            steps = fanout.attend_tree(
                question,
                [(target, by_node[node]) for target, node in targets.items()],
                self.layer,
                has_sinks=not calls,
            )
            first = self._client(nodes[0])
            call = fanout.Call(first, tuple(one for _, one in batch), steps)
            call.others = {t: node for t, node in targets.items() if node != nodes[0]}
            if all(len(part.replicas) > 1 for part, _ in batch):
                # Not others' replicas: the slow server may have some of those, too.
                call.elsewhere = lambda: []
            calls.append(call)
        return calls

    def _calls(
        self,
        question: fanout.Question,
        chosen: Iterable[tuple[Range, Replica]],
        *,
        has_sinks: bool,
        is_hedged: bool,
    ) -> list[fanout.Call]:
        """One for each server, or several of large ones; the first has the sinks."""
        by_node: dict[str, list[tuple[Range, Replica]]] = {}
        for part, replica in chosen:
            by_node.setdefault(replica.node, []).append((part, replica))
        # Each range has a query and an output of its own. Masks and biases fit one.
        size = max(1, _MOST // max(1, question.entry_bytes(self.known.form)))
        size = 1 if question.by_key else size
        calls: list[fanout.Call] = []
        for node, of_node in by_node.items():
            for first in range(0, len(of_node), size):
                batch = of_node[first : first + size]
                sinks = has_sinks and not calls
                steps = fanout.attend(question, batch, self.layer, has_sinks=sinks)
                replicas = tuple(replica for _, replica in batch)
                call = fanout.Call(self._client(node), replicas, steps)
                if is_hedged and all(len(part.replicas) > 1 for part, _ in batch):
                    call.elsewhere = self._elsewhere(question, batch, sinks)
                calls.append(call)
        return calls

    def _elsewhere(
        self,
        question: fanout.Question,
        batch: Sequence[tuple[Range, Replica]],
        has_sinks: bool,
    ) -> Callable[[], list[fanout.Call]]:
        def make() -> list[fanout.Call]:
            others = [
                (part, next(other for other in part.replicas if other != replica))
                for part, replica in batch
            ]
            return self._calls(question, others, has_sinks=has_sinks, is_hedged=False)

        return make

    def _run(self, calls: list[fanout.Call], *, is_first: bool = True) -> None:
        """is_first: not of appends that a replica before these has taken."""
        cluster = self.cluster
        threads, recent = cluster._threads, cluster._recent
        try:
            hedging.run(threads, calls, self.left, self.metadata, recent)
        except RuntimeError:  # of threads that have ended, or that there is no room for
            cluster._check_open()
            raise
        _raise_first(calls, _STALE if is_first else (*_STALE, OutOfRangeError))


def _raise_first(
    calls: list[fanout.Call], of_map: tuple[type[AttentionError], ...]
) -> None:
    """What a caller has done wrong, or that the map is out of date: of_map."""
    # The call that appends is the last one, and says most.
    failed = [c for c in reversed(calls) if isinstance(c.outcome, AttentionError)]
    stale = []
    for call in failed:
        if call.others and tree.Trees.ends_with(call.outcome):
            raise RefusedError(call.outcome)
        if isinstance(call.outcome, of_map):
            stale.append(call)
        elif call.outcome.field in ("attend_mask", "bias"):
            raise LongerError(call.outcome, call.replicas)
        else:
            raise call.outcome
    if stale:
        gone = [
            call.failed_node
            for call in stale
            if isinstance(call.outcome, (UnavailableError, CancelledError))
        ]
        in_tree = any(call.others for call in stale)
        raise StaleError(stale[0].outcome, gone, in_tree=in_tree)
