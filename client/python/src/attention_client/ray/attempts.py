"""What an attempt of a call is given to append, and how it may end."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator

from attention_client._arrays import Array
from attention_client.errors import (
    AbortedError,
    AttentionError,
    KeysLostError,
    OutOfRangeError,
)
from attention_client.ray.ranges import Range, Replica, shown


class StaleError(Exception):
    """A call that may succeed with another map."""

    def __init__(
        self, error: AttentionError, nodes: list[str], *, in_tree: bool
    ) -> None:
        self.error = error
        self.nodes = nodes  # that do not answer
        self.in_tree = in_tree  # whether servers were to ask each other
        # An append: a program may have left one half done, which is to be finished.
        self.is_refused = isinstance(error, (AbortedError, OutOfRangeError))


class RefusedError(Exception):
    """Servers do not ask each other; each of them may well answer."""

    def __init__(self, error: AttentionError) -> None:
        self.error = error


class LongerError(Exception):
    """Ranges to which others have appended: a mask or a bias has too few columns."""

    def __init__(self, error: AttentionError, replicas: tuple[Replica, ...]) -> None:
        self.error = error
        self.replicas = replicas


@dataclasses.dataclass(frozen=True)
class NewKeys:
    """Keys and values that go to positions from the first one on."""

    arrays: dict[str, Array]
    position: int

    @property
    def end(self) -> int:
        return self.position + int(self.arrays["key"].shape[-2])

    def belongs(self, part: Range) -> bool:
        """Whether some of them go there."""
        return part.start < self.end and self.position < part.end

    def cut(self, part: Range) -> tuple[dict[str, Array], int]:
        """Keys and values that belong to a range, and where they go in it."""
        first = max(part.start - self.position, 0)
        rows = slice(first, part.end - self.position)
        cut = {
            name: array[..., rows, :] if array.ndim == 4 else array[..., rows]
            for name, array in self.arrays.items()
        }
        return cut, self.position + first - part.start

    @contextlib.contextmanager
    def going_to(self, part: Range) -> Iterator[None]:
        """An AbortedError of the range says what that means for all rows."""
        try:
            yield
        except StaleError as stale:
            error = stale.error
            if isinstance(error, AbortedError) and error.field == "position":
                # Ranges are appended to in turn.
                before = max(part.start - self.position, 0)
                stale.error = AbortedError(
                    f"position: {self.position + before} has other keys or values; "
                    f"{before} of {self.end - self.position} rows are in, before it",
                    retry_after=error.retry_after,
                )
                stale.error.server, stale.error.appended = error.server, before
            raise


def lost(name: str, missing: Iterable[tuple[int, int]]) -> KeysLostError:
    """The error that names these positions."""
    positions = tuple(missing)
    return KeysLostError(
        f"the sequence {name!r} has lost its keys at positions {shown(positions)}: the "
        "nodes that had them are gone (partial=True attends to the others)",
        positions,
    )
