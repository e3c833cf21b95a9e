"""Checkpoints that are written while their sequences change."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from attention_client.errors import ResourceExhaustedError
from attention_client.ray import checkpoints
from attention_client.ray.placing import Placement
from attention_client.ray.ranges import Range, Replica, SequenceMap
from attention_client.ray.replicas import Replicas


def export(
    replicas: Replicas,
    placement: Placement,
    publishing: threading.Lock,
    name: str,
    folder: Path,
) -> int:
    """Bytes of a checkpoint that takes the place of an earlier one in its folder.

    publishing: held while it does, so that each deletes the one before it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / checkpoints.INDEX
    token = os.urandom(6).hex()
    with _forked(replicas, placement, name) as known, _removed_unless_done() as new:
        parts: list[checkpoints.Part] = []
        size = 0
        for part in reversed(known.ranges):
            file = f"{part.start}.{token}.safetensors"
            new.append(folder / file)
            size += replicas.written(part, str(folder / file))
            parts.append(checkpoints.Part(part.start, part.capacity, file))
        partial = folder / f"sequence.{token}.part"
        new.append(partial)
        told = checkpoints.Checkpoint(known.form, known.range_keys, parts[::-1])
        partial.write_text(told.text())
        checkpoints.to_disk(partial)
        size += partial.stat().st_size
        with publishing:
            old = checkpoints.files(index)
            partial.replace(index)
    for one in old:
        with contextlib.suppress(OSError):  # the new ones are whole
            one.unlink()
    return size


@contextlib.contextmanager
def _forked(
    replicas: Replicas, placement: Placement, name: str
) -> Iterator[SequenceMap]:
    """A sequence as it is, each range at one server, while the context lasts.

    No map names it, so that nobody moves it: it is gone with a server that is. Where a
    server has no room for its fork, it is the sequence itself, with its lock: written
    from the last range on, it has no gap.
    """
    forks: list[Replica] = []
    try:
        with contextlib.ExitStack() as lock:
            known = lock.enter_context(placement.changing(name))
            placement.check_not_lost(known)
            known = known.changed(
                dataclasses.replace(part, replicas=part.replicas[:1])
                for part in known.ranges
            )
            parts: list[Range] = []
            # The last one first: appends go on, and are in the earlier ranges, too.
            with contextlib.suppress(ResourceExhaustedError):
                for part in reversed(known.ranges):
                    parts.append(replicas.fork_range(known, part, None))
                    forks += parts[-1].replicas
                known = known.changed(reversed(parts))
                lock.close()
            yield known
    finally:
        replicas.delete(forks)


@contextlib.contextmanager
def _removed_unless_done() -> Iterator[list[Path]]:
    """Files that are listed go where the block fails."""
    files: list[Path] = []
    try:
        yield files
    except BaseException:
        for file in files:
            file.unlink(missing_ok=True)
        raise
