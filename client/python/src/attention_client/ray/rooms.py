"""How many keys servers have room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from attention_client.ray.ranges import PAGE, Range, SequenceMap

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
        filled: Sequence[int] | None,
    ) -> dict[str, int]:
        """Keys of a sequence for which nodes have room, in whole pages.

        Set aside is what a sequence's last range may take, as if it had nothing yet: a
        map does not know how far it is. Of this sequence it is what all its ranges may
        still take where its layers have as many keys as filled says; None: as of
        others.
        """
        aside: Counter[str] = Counter()
        for one in sequences:
            parts, lengths = one.ranges[-1:], [0] * one.form.layers
            if one.name == known.name and filled is not None:
                parts, lengths = one.ranges, list(filled)
            for part in parts:
                left = _left_bytes(one, part, lengths)
                for replica in part.replicas:
                    aside[replica.node] += left
        return {node: self._keys(known, node, aside[node]) for node in nodes}

    def free(self, known: SequenceMap, node: str) -> int:
        """Likewise, of one node, where nobody takes what is set aside."""
        return self._keys(known, node, 0)

    def _keys(self, known: SequenceMap, node: str, aside: int) -> int:
        size = known.form.layers * _page_bytes(known)
        # One page less: a sequence takes some memory itself.
        return ((self._free.get(node, _UNKNOWN) - aside) // size - 1) * PAGE


def _left_bytes(known: SequenceMap, part: Range, lengths: Iterable[int]) -> int:
    """That a range may still take, where its layers have so many keys."""
    pages = sum((part.capacity - part.count(keys)) // PAGE for keys in lengths)
    return pages * _page_bytes(known)


def _page_bytes(known: SequenceMap) -> int:
    """That a page of a layer takes."""
    form = known.form
    size = {"float32": 4, "float16": 2, "bfloat16": 2}.get(form.datatype, 1)
    scales = 8 if size == 1 else 0
    key = form.heads * (size * (form.key_width + form.value_width) + scales)
    return PAGE * key + _TABLES
