"""The index of a checkpoint: which file of its folder has which positions."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

from attention_client.errors import InvalidArgumentError
from attention_client.info import SequenceForm

INDEX = "sequence.json"


@dataclasses.dataclass(frozen=True)
class Part:
    """A range, and its file."""

    start: int
    capacity: int
    file: str


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What an index says."""

    form: SequenceForm
    range_keys: int
    parts: Sequence[Part]  # by position

    def text(self) -> str:
        told = {
            "form": dataclasses.asdict(self.form),
            "range_keys": self.range_keys,
            "ranges": [dataclasses.asdict(part) for part in self.parts],
        }
        return json.dumps(told, indent=1)


def read(index: Path) -> Checkpoint:
    """InvalidArgumentError for a file that is no index."""
    try:
        told = json.loads(index.read_text())
        form = SequenceForm(**told["form"])
        parts = [Part(**one) for one in told["ranges"]]
        made = Checkpoint(form, told["range_keys"], parts)
        numbers = [made.range_keys, *(n for p in parts for n in (p.start, p.capacity))]
        if not all(isinstance(n, int) for n in numbers):
            raise TypeError(f"{numbers}")
        if not all(isinstance(p.file, str) for p in parts):
            raise TypeError(f"{parts}")
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"folder: {index} is no index of a checkpoint: {error!r} (expected what "
            "export() has written)"
        ) from None
    return made


def files(index: Path) -> list[Path]:
    """Of a checkpoint that may be there, in its own folder."""
    try:
        parts = read(index).parts
    except (OSError, InvalidArgumentError):
        return []
    return [index.parent / p.file for p in parts if Path(p.file).name == p.file]


def to_disk(file: str | os.PathLike[str]) -> None:
    """What is in it outlasts the machine's end: older files may go then."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
