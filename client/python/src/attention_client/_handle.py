"""What sequences of both clients are."""

from __future__ import annotations

from typing_extensions import Self

from attention_client._known import Known
from attention_client.errors import AttentionError
from attention_client.info import SequenceForm


class EndsWithBlock:
    """A sequence that a with statement deletes at its end, unless another's."""

    _is_own: bool

    def delete(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if not self._is_own:
            return
        try:
            self.delete()
        except AttentionError:
            # What has failed before is more telling.
            if failure is None:
                raise


class Handle:
    """A sequence's name, and what a client has seen of it."""

    def __init__(self, known: Known, *, is_own: bool) -> None:
        self._known = known
        self._is_own = is_own

    @property
    def name(self) -> str:
        return self._known.name

    @property
    def form(self) -> SequenceForm:
        return self._known.form

    @property
    def incarnation(self) -> int:
        return self._known.incarnation

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self._known.lengths)

    def __len__(self) -> int:
        return min(self._known.lengths)

    def __bool__(self) -> bool:
        return True  # also without keys

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, lengths={list(self.lengths)})"
