"""A read that a server is slow to answer goes to another replica, too.

Dean and Barroso, "The Tail at Scale", 2013: the second request is sent once the first
has taken longer than 95 of 100 recent answers of its server, so that few are, and
whichever is answered later is cancelled.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Executor

import grpc

from attention_client import _channel, _process
from attention_client.errors import AttentionError, CancelledError, from_rpc_error
from attention_client.ray import fanout
from attention_client.ray.tree import LateError

_KEPT = 100  # answers of a server
_LEAST = 20  # from which on they say what is slow
_SHARE = 0.95
_UNKNOWN = 10.0  # seconds that are waited before that


class Recent:
    """How long the last calls of each kind took. For many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, deque[float]] = {}

    def add(self, kinds: Iterable[str], seconds: float) -> None:
        with self._lock:
            for kind in kinds:
                self._seconds.setdefault(kind, deque(maxlen=_KEPT)).append(seconds)

    def keep(self, nodes: Container[str]) -> None:
        """Forgets calls to others."""
        with self._lock:
            for kind in list(self._seconds):
                if kind.removesuffix(fanout.AND_OTHERS) not in nodes:
                    del self._seconds[kind]

    def patience(self, kind: str) -> float:
        """Seconds until another one is asked."""
        with self._lock:
            seconds = sorted(self._seconds.get(kind, ()))
        if len(seconds) < _LEAST:
            return _UNKNOWN
        return seconds[int(_SHARE * len(seconds))]


class _Sent:
    """A request that is under way; it puts itself into arrived when it has ended."""

    def __init__(
        self,
        call: fanout.Call,
        left: Callable[[], float],
        metadata: _channel.Metadata | None,
        arrived: queue.SimpleQueue[_Sent],
    ) -> None:
        self.call = call
        self._begin = time.monotonic()
        method, asked = next(call.steps)
        self._future = call.client._start(method, bytes(asked), left(), metadata)
        self._future.add_done_callback(lambda _: arrived.put(self))

    @property
    def has_failed(self) -> bool:
        return isinstance(self.call.outcome, AttentionError)

    def finish(self, recent: Recent) -> None:
        """Gives the call its outcome."""
        try:
            self.call.steps.send(self._future.result())
        except StopIteration as done:
            self.call.outcome = done.value
            # A tree that is given up leaves calls to each of its servers, which must
            # know what is slow, too.
            recent.add(self.call.kinds, time.monotonic() - self._begin)
        except grpc.RpcError as error:
            self.call.outcome = from_rpc_error(error, self.call.client.target)
        except grpc.FutureCancelledError:
            self.call.outcome = CancelledError("the client is closed")
        except AttentionError as error:
            self.call.outcome = error

    def give_up(self) -> None:
        self.cancel()
        seconds = time.monotonic() - self._begin
        self.call.outcome = LateError(
            f"{self.call.kind}: no answer within {seconds:.3f} s", self.call.kind
        )

    def cancel(self) -> None:
        self._future.cancel()


def run(
    threads: Executor,
    calls: Sequence[fanout.Call],
    left: Callable[[], float],
    metadata: _channel.Metadata | None,
    recent: Recent,
) -> None:
    """Has all calls under way at once, and waits for all: each has its outcome then.

    Threads that wait take less time than gRPC's futures, which start one for each call;
    but only futures can be cancelled. They do no more than wait, so that they do not
    hold each other up: requests are written, and answers read, by the calling thread.
    """
    waits: list[Callable[[], bytes | None]] = []
    for call in calls:
        wait: Callable[[], bytes | None]
        if call.elsewhere is not None:
            wait = functools.partial(
                _read, call, call.elsewhere, left, metadata, recent
            )
        else:
            method, asked = next(call.steps)
            wait = functools.partial(
                call.client._call, method, bytes(asked), left(), metadata
            )
        # The last one waits here.
        waits.append(wait if call is calls[-1] else threads.submit(wait).result)
    for call, wait in zip(reversed(calls), reversed(waits), strict=True):
        try:
            reply = wait()
            if reply is not None:
                call.steps.send(reply)
        except StopIteration as done:
            call.outcome = done.value
        except AttentionError as error:
            call.outcome = error


def _read(
    call: fanout.Call,
    elsewhere: Callable[[], list[fanout.Call]],
    left: Callable[[], float],
    metadata: _channel.Metadata | None,
    recent: Recent,
) -> None:
    """Gives the call an outcome, and the replicas that it is of."""
    arrived: queue.SimpleQueue[_Sent] = queue.SimpleQueue()
    with _process.under_way():
        first = _Sent(call, left, metadata, arrived)
        try:
            arrived.get(timeout=recent.patience(call.kind))
        except queue.Empty:
            if call.others:
                first.give_up()
            else:
                _race(first, elsewhere(), left, metadata, recent, arrived)
        else:
            first.finish(recent)


def _race(
    first: _Sent,
    calls: list[fanout.Call],
    left: Callable[[], float],
    metadata: _channel.Metadata | None,
    recent: Recent,
    arrived: queue.SimpleQueue[_Sent],
) -> None:
    """Between a request and those that ask others for the same."""
    others = [_Sent(call, left, metadata, arrived) for call in calls]
    waiting = {id(one): one for one in (first, *others)}
    try:
        while waiting:
            one = arrived.get()
            del waiting[id(one)]
            one.finish(recent)
            if one is first and not one.has_failed:
                return
            if any(other.has_failed for other in others):
                if id(first) not in waiting:
                    return  # with the outcome of the first one
            elif all(id(other) not in waiting for other in others):
                results = [call.outcome for call in calls]
                first.call.outcome = (
                    results[0] if len(results) == 1 else fanout.merge(results)
                )
                first.call.replicas = tuple(r for c in calls for r in c.replicas)
                return
    finally:
        for one in waiting.values():
            one.cancel()
