"""How many keys servers have room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from attention_client.ray.ranges import PAGE, SequenceMap

_UNKNOWN = 1 << 62  # bytes, of a server that has not said yet
_TABLES = 160  # bytes, at most, beside the keys of a page of a layer


class Rooms:
    """What servers have said of their memory, less what is set aside there."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}  # bytes

    def set(self, node: str, free: int) -> None:
        """What a server has just said."""
        self._free[node] = free

    def forget(self, node: str) -> None:
        self._free.pop(node, None)

    def of(
        self,
        known: SequenceMap,
        nodes: Iterable[str],
        sequences: Iterable[SequenceMap],
        since: int | None,
    ) -> dict[str, int]:
        """Keys of a sequence for which nodes have room, in whole pages.

        Set aside is what a sequence's last range may take, as if it had nothing yet: a
        map does not know how far it is. Of this sequence it is what ranges take that
        end behind since; None: as of others.
        """
        aside: Counter[str] = Counter()
        for one in sequences:
            parts = one.ranges[-1:]
            if one.name == known.name and since is not None:
                parts = tuple(part for part in one.ranges if part.end > since)
            for part in parts:
                for replica in part.replicas:
                    aside[replica.node] += part.capacity // PAGE * _page_bytes(one)
        size = _page_bytes(known)
        # One page less: a sequence takes some memory itself.
        return {
            node: ((self._free.get(node, _UNKNOWN) - aside[node]) // size - 1) * PAGE
            for node in nodes
        }


def _page_bytes(known: SequenceMap) -> int:
    """That a page of every layer takes."""
    form = known.form
    size = {"float32": 4, "float16": 2, "bfloat16": 2}.get(form.datatype, 1)
    scales = 8 if size == 1 else 0
    key = form.heads * (size * (form.key_width + form.value_width) + scales)
    return form.layers * (PAGE * key + _TABLES)
