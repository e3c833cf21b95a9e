"""Keys and values that stay, for programs that wait for their answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from attention_client import _channel, _sequence_calls, _sequence_tensors
from attention_client._calls import Returned, Steps
from attention_client._handle import EndsWithBlock, Handle
from attention_client._known import Known
from attention_client._options import Options
from attention_client._reply import Result
from attention_client.info import SequenceDescription

if TYPE_CHECKING:
    from attention_client._keeps_sequences import KeepsSequences


class Sequence(Handle, EndsWithBlock):
    """Keys and values of a name, one list for each layer of a model.

    They are on a server, or in this process where an engine has made it.
    Client.sequence() makes one, Client.open_sequence() finds one, and so do fork() and
    Client.import_sequence(). As a context manager it is deleted at the end, unless it
    was opened, and so is another's.

        with client.sequence(heads=8, width=128, layers=32) as sequence:
            sequence.append(key, value, layer=0)          # (Hkv, n, D)
            output = sequence.attend(query, layer=0).output   # (Hq, Lq, D)

    Its appends say at which position they are: one whose answer was lost is called
    again as it was, and the server acknowledges keys that it has already. Appends to
    one layer come one after the other.

    name, form and incarnation are what the server has said; len() is the number of keys
    that every layer has, and lengths those of each, as far as this client has seen.
    """

    def __init__(
        self,
        client: KeepsSequences,
        known: Known,
        *,
        is_own: bool = True,
    ) -> None:
        super().__init__(known, is_own=is_own)
        self._client = client

    def append(
        self,
        key: Any,
        value: Any,
        layer: int = 0,
        position: int | None = None,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> int:
        """Puts keys and values behind those of a layer; its length then.

        key and value: (Hkv, n, D), (n, D) of one head, or with a batch of 1 before;
        they are converted to the sequence's datatype. Of int8 and float8_e4m3fn each
        is what quantize() gives, a pair of elements and scales, or is quantized here
        as quantize() does it. position: of the first key, in place of the length: keys
        that are there already must be the same.
        """
        steps = _sequence_tensors.append(self._known, key, value, layer, position)
        return self._run(steps, timeout, metadata)

    def attend(
        self,
        query: Any,
        layer: int = 0,
        append: tuple[Any, Any] | None = None,
        position: int | None = None,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Attention of the queries to the keys of a layer.

        query: (Hq, Lq, D), (Lq, D) of one head, or with a batch of 1 before; so are the
        results. append: a key and a value, as append() takes them, which come first: a
        step of a decoder is one call. position: where they are appended, as there.
        Options are those of Client.attend; causal="bottom_right" has the last query see
        all keys.
        """
        steps = _sequence_tensors.attend(
            self._known, query, layer, append, position, options
        )
        return self._run(steps, timeout, metadata)

    def fork(
        self,
        name: str | None = None,
        length: int | None = None,
        *,
        label: str | None = None,
        idle_limit: float | None = None,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> Sequence:
        """One that has the same keys, and goes its own way; they share memory.

        length: the first keys of every layer, in place of all. label and idle_limit:
        in place of this one's.
        """
        new = _sequence_calls.New.of(name, self._known.route)
        steps = _sequence_calls.fork(self._known, new, length, label, idle_limit)
        watched = _sequence_calls.watched([self._known], steps)
        metadata = self._client._routed(self._known.route, metadata)
        return self._client._make(new, watched, timeout, metadata)

    def truncate(
        self,
        length: int,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> None:
        """Keeps the first keys of every layer."""
        steps = _sequence_calls.truncate(self._known, length)
        self._run(steps, timeout, metadata)

    def describe(
        self,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> SequenceDescription:
        """What the server has; lengths and len() are of it from then on."""
        return self._run(_sequence_calls.refresh(self._known), timeout, metadata)

    def export(
        self,
        file: str | os.PathLike[str],
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> int:
        """Writes it into a file of the server's folder for them; its bytes.

        An engine takes any path. The file has tensors key.0, value.0 and so on, in the
        format of safetensors.
        """
        steps = _sequence_calls.export(self._known, file)
        return self._run(steps, timeout, metadata)

    def delete(
        self,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> None:
        """Ends it. Safe to call twice."""
        self._client.delete_sequences(
            [self.name],
            timeout=timeout,
            metadata=self._client._routed(self._known.route, metadata),
        )

    def _run(
        self,
        steps: Steps[Returned],
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> Returned:
        watched = _sequence_calls.watched([self._known], steps)
        metadata = self._client._routed(self._known.route, metadata)
        return self._client._run(watched, timeout, metadata)
