"""The calls on sequences of whatever keeps them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from typing_extensions import Unpack

from attention_client import _channel, _sequence_calls, _sequence_tensors
from attention_client._calls import Returned, Steps
from attention_client._known import Known
from attention_client._options import Options
from attention_client._reply import Result
from attention_client.info import SequenceDescription
from attention_client.sequence import Sequence


class KeepsSequences:
    """What Client, of a server, and Engine, in this process, have in common."""

    def _run(
        self,
        steps: Steps[Returned],
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> Returned:
        raise NotImplementedError

    def _routed(
        self, name: str, metadata: _channel.Metadata | None
    ) -> _channel.Metadata | None:
        """What leads a call to the sequence of a name: nothing, in this process."""
        return metadata

    def _left(self, timeout: float | None) -> Callable[[], float | None]:
        """What is left of a timeout, for several calls: all of it, in this process."""
        if timeout is not None:
            timeout = _channel._checked_timeout(timeout)
        return lambda: timeout

    def _make(
        self,
        new: _sequence_calls.New,
        steps: Steps[Known],
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> Sequence:
        """What the steps make; nothing is left of it where they fail."""
        try:
            return Sequence(self, self._run(steps, timeout, metadata))
        except BaseException as error:
            if new.is_left_by(error):
                deletion = _sequence_calls.delete([new.name])
                with contextlib.suppress(Exception):
                    self._run(deletion, _sequence_calls.CLEANUP, metadata)
            raise

    def sequence(
        self,
        *,
        heads: int,
        width: int,
        value_width: int | None = None,
        layers: int = 1,
        dtype: Any = "float32",
        name: str | None = None,
        label: str = "",
        idle_limit: float | None = None,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> Sequence:
        """A new Sequence: keys and values that stay on the server, or in an engine.

        heads, width and value_width: of keys and values, in every layer. dtype:
        "float32", "float16", "bfloat16", "int8", "float8_e4m3fn", or a type of numpy or
        PyTorch. name: in place of one of 128 random bits, which nobody can guess;
        label: what sequences() finds it by. idle_limit: seconds that it may be unused,
        in place of the server's; an engine has none.
        """
        new = _sequence_calls.New.of(name)
        metadata = self._routed(new.name, metadata)
        steps = _sequence_calls.create(
            heads, width, value_width, layers, dtype, new, label, idle_limit
        )
        return self._make(new, steps, timeout, metadata)

    def open_sequence(
        self,
        name: str,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> Sequence:
        """The Sequence of a name. As a context manager it is not deleted."""
        metadata = self._routed(name, metadata)
        known = self._run(_sequence_calls.find(name), timeout, metadata)
        return Sequence(self, known, is_own=False)

    def import_sequence(
        self,
        file: str | os.PathLike[str],
        *,
        name: str | None = None,
        label: str = "",
        idle_limit: float | None = None,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> Sequence:
        """A new Sequence of a file that Sequence.export() has written."""
        new = _sequence_calls.New.of(name)
        metadata = self._routed(new.name, metadata)
        steps = _sequence_calls.read_file(file, new, label, idle_limit)
        return self._make(new, steps, timeout, metadata)

    def attend_sequences(
        self,
        sequences: Iterable[Sequence],
        query: Any,
        layer: int = 0,
        append: tuple[Any, Any] | None = None,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Attention of each entry's queries to the keys of a sequence of its own.

        query: (B, Hq, Lq, D), or (T, Hq, D) with query_starts. append: (key, value) of
        (B, Hkv, n, D), or (T, Hkv, D), which come behind the keys that are there, and
        are seen. Lengths may differ. Options are those of attend. Behind a proxy all
        are to be at one server, as forks of one sequence are.

        Where one entry fails, others may have appended already, and lengths do not say
        so: the same call again acknowledges what is there, and describe() of a
        sequence takes its lengths anew.
        """
        known = _sequence_calls.known_of(sequences)
        steps = _sequence_tensors.attend_all(known, query, layer, append, options)
        if known:
            metadata = self._routed(known[0].route, metadata)
        return self._run(_sequence_calls.watched(known, steps), timeout, metadata)

    def sequences(
        self,
        *,
        label: str | None = None,
        label_prefix: str | None = None,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> Iterator[SequenceDescription]:
        """All of the caller's, in order of label and name; those of a label alone.

        timeout: of each page, which are asked for as they are needed.
        """
        token: str | None = ""
        while token is not None:
            steps = _sequence_calls.list_page(label, label_prefix, token)
            page, following = self._run(steps, timeout, metadata)
            yield from page
            token = following or None

    def delete_sequences(
        self,
        names: Iterable[str],
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> int:
        """Ends those that are there; how many there were.

        Where an answer was lost and the call was made once more, those that the first
        one ended are not counted.
        """
        deleted = 0
        left = self._left(timeout)
        for group in _sequence_calls.by_route(names):
            own = self._routed(group[0], metadata)
            deleted += self._run(_sequence_calls.delete(group), left(), own)
        return deleted
