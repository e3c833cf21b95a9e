"""Measuring a call, and taking turns."""

import contextlib
import gc
import math
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ContextManager, Protocol

import numpy as np

SHORTEST_BATCH = 50e-6  # seconds; shorter calls are timed together


class CannotDo(Exception):
    """Why a peer has no answer to a case."""


class Crashed(CannotDo):
    """The contender's process ended."""

    @classmethod
    def of(cls, code: int) -> "Crashed":
        """Of its exit code, as subprocess has it."""
        what = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return cls(f"crashes: {what}")


class Contender(Protocol):
    """Whoever is measured: us, a variant of us, a peer."""

    name: str

    def measure(self, seconds: float) -> float:
        """Calls for about that long; the median seconds of a call."""

    def close(self) -> None: ...


@dataclass
class Peer:
    """A call in this process, and what it computes."""

    name: str
    call: Callable[[], object]
    read: Callable[[], dict[str, np.ndarray]]  # what the last call computed
    # Entered around many calls, for what is switched on globally.
    around: Callable[[], ContextManager] = contextlib.nullcontext

    def results(self) -> dict[str, np.ndarray]:
        """`output`, and `weights` where they are returned, of one call."""
        with self.around():
            self.call()
        return self.read()

    def measure(self, seconds: float) -> float:
        with self.around(), no_garbage_collection():
            return seconds_of(self.call, seconds)


@contextlib.contextmanager
def no_garbage_collection():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def seconds_of(call: Callable[[], object], seconds: float) -> float:
    """What attention-benchmark --serve-rounds does, in Python."""

    def batch_of(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls

    # The first call brings code and data back into the caches.
    if batch_of(1) > seconds:
        return batch_of(1)
    calls = max(1, math.ceil(SHORTEST_BATCH / max(batch_of(1), 1e-9)))
    each = []
    start = time.perf_counter()
    while not each or time.perf_counter() - start < seconds:
        each.append(batch_of(calls))
    return statistics.median(each)


def take_turns(
    contenders: list[Contender],
    rounds: int,
    seconds: float,
    after_round: Callable[[], None],
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds of a call, by name, one for each round; and who dropped out, and why.
    Every contender has its turn in every round, and each round begins with another
    one, so that what the machine does meanwhile falls on all alike."""
    samples: dict[str, list[float]] = {one.name: [] for one in contenders}
    dropped: dict[str, str] = {}
    for n in range(rounds):
        first = n % len(contenders)
        for one in contenders[first:] + contenders[:first]:
            if one.name in dropped:
                continue
            try:
                samples[one.name].append(one.measure(seconds))
            except CannotDo as error:
                dropped[one.name] = str(error)
                del samples[one.name]
        after_round()
    return samples, dropped
