"""What a cluster tells of itself: figures for Ray's dashboard, a bar in a terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from attention_client.errors import AttentionError
from attention_client.ray.ranges import SequenceMap

_LOOK = 0.5  # seconds between two looks at how far it is


class Figures:
    """Those of the map's actor, as Ray's metrics: Ray puts ray_ before their names.

    They are labelled with the cluster's name. Ray sends them on every few seconds.
    """

    def __init__(self, cluster: str) -> None:
        from ray.util.metrics import Counter, Gauge

        self._lock = threading.Lock()
        self._bytes = 0
        self._tags = {"cluster": cluster}
        self._copied: Any = Counter(
            "attention_cluster_copied_bytes",
            "Bytes of keys and values that were moved, imported or exported",
            ("cluster", "operation"),
        )
        self._gauges: dict[str, Any] = {
            name: Gauge(f"attention_cluster_{name}", description, ("cluster",))
            for name, description in (
                ("nodes", "Servers that hold keys"),
                ("sequences", "Sequences"),
                ("ranges", "Ranges of all sequences"),
                ("thin_ranges", "Ranges with fewer replicas than are wanted"),
                ("lost_positions", "Positions whose keys are lost"),
            )
        }

    def add(self, operation: str, size: int) -> None:
        """Bytes that were copied; operation: move, import or export."""
        if size == 0:  # a range without keys; Ray counts nothing below 1
            return
        with self._lock:
            self._bytes += size
        self._copied.inc(size, {**self._tags, "operation": operation})

    @property
    def copied_bytes(self) -> int:
        """All since the actor started."""
        return self._bytes

    def set(self, nodes: int, sequences: list[SequenceMap]) -> None:
        """What there is now."""
        ranges = [(known, part) for known in sequences for part in known.ranges]
        now = {
            "nodes": nodes,
            "sequences": len(sequences),
            "ranges": len(ranges),
            "thin_ranges": sum(
                len(part.replicas) < known.replicas for known, part in ranges
            ),
            "lost_positions": sum(
                part.capacity for _, part in ranges if not part.replicas
            ),
        }
        for name, value in now.items():
            self._gauges[name].set(value, self._tags)


@contextlib.contextmanager
def shown(operation: str, copied_bytes: Callable[[], int]) -> Iterator[None]:
    """Shows how much is copied meanwhile, where there is a terminal and tqdm.

    copied_bytes: all so far, of any time before as well.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        tqdm = None
    if tqdm is None or not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()
    before = copied_bytes()

    def follow() -> None:
        with tqdm(desc=operation, unit="B", unit_scale=True, file=sys.stderr) as bar:
            is_last = False
            while not is_last:
                is_last = ended.wait(_LOOK)
                # The map may be starting anew: then from nothing.
                with contextlib.suppress(AttentionError):
                    bar.update(max(0, copied_bytes() - before - bar.n))

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
