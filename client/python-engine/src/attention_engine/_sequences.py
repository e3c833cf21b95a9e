"""What a server answers to calls on sequences, answered in this process.

The calls and their checks are the client's own (attention_client._sequence_calls and
_sequence_tensors): this takes their requests, and asks the extension in place of a
server.
"""

from __future__ import annotations

from typing import Any

from attention_client import _channel, _messages
from attention_client._calls import Asked
from attention_client._reply import Result
from attention_client._sequence_tensors import Append, Attend
from attention_engine import _native

_NAMES = {n: name for name, n in _messages.enum("attention.v1.DataType").items()}
_NUMBERS = {name: n for n, name in _NAMES.items()}


def _given(message: Any, field: str) -> Any:
    """A field that may be absent, then None."""
    return getattr(message, field) if message.HasField(field) else None


def _read(kind: str, asked: Asked) -> Any:
    return _messages.own(kind).FromString(bytes(asked))


class Sequences:
    """The sequences of one engine."""

    def __init__(self, engine: _native.Engine, store: _native.Store) -> None:
        self._engine = engine
        self._store = store
        self._answers = {
            _channel.CREATE: ("CreateSequencesRequest", self._create),
            _channel.TRUNCATE: ("TruncateRequest", self._truncate),
            _channel.FORK: ("ForkRequest", self._fork),
            _channel.DESCRIBE: ("DescribeSequenceRequest", self._describe),
            _channel.LIST: ("ListSequencesRequest", self._list),
            _channel.DELETE: ("DeleteSequencesRequest", self._delete),
        }

    def answer(self, method: str, asked: Asked, timeout: float | None) -> Any:
        """The reply's bytes; of Attend the Result, with arrays of numpy.

        timeout: seconds that computing, or a file, may take; the rest copies rows at
        most.
        """
        if isinstance(asked, Attend):
            return self._attend(asked, timeout)
        if isinstance(asked, Append):
            reply = self._append(asked)
        elif method == _channel.EXPORT:
            reply = self._export(_read("ExportSequenceRequest", asked), timeout)
        elif method == _channel.IMPORT:
            reply = self._import(_read("ImportSequenceRequest", asked), timeout)
        else:
            kind, work = self._answers[method]
            reply = work(_read(kind, asked))
        return reply.SerializeToString()

    def _attend(self, asked: Attend, timeout: float | None) -> Result:
        query, key, value, options = asked.arguments()
        entries = [
            (one.name, one.layer, _given(one, "position")) for one in asked.entries
        ]
        return self._engine.attend_sequences(
            self._store, entries, query, key, value, timeout=timeout, **options
        )

    def _append(self, asked: Append) -> Any:
        request, arrays = asked.message, asked.arrays
        length, new_keys = self._store.append(
            request.name,
            request.layer,
            _given(request, "position"),
            arrays["key"],
            arrays["value"],
            arrays.get("key_scale"),
            arrays.get("value_scale"),
        )
        return _messages.own("AppendResponse")(length=length, new_keys=new_keys)

    def _create(self, request: Any) -> Any:
        wanted = [
            (
                one.form.heads,
                one.form.key_width,
                one.form.value_width,
                _NAMES[one.form.datatype],
                one.form.layers,
                one.name,
                one.label,
                _given(one, "idle_limit_ms"),
            )
            for one in request.sequences
        ]
        return _messages.own("CreateSequencesResponse")(
            names=self._store.create(wanted), incarnation=self._store.incarnation
        )

    def _truncate(self, request: Any) -> Any:
        self._store.truncate(request.name, request.length)
        return _messages.own("TruncateResponse")()

    def _fork(self, request: Any) -> Any:
        name = self._store.fork(
            request.name,
            _given(request, "length"),
            request.new_name,
            _given(request, "label"),
            _given(request, "idle_limit_ms"),
        )
        return _messages.own("ForkResponse")(name=name)

    def _describe(self, request: Any) -> Any:
        return self._description(self._store.describe(request.name))

    def _list(self, request: Any) -> Any:
        """All of them: there is no message to be too large."""
        is_prefix = not request.HasField("label")
        label = request.label_prefix if is_prefix else request.label
        found = self._store.list_all(label, is_prefix)
        return _messages.own("ListSequencesResponse")(
            sequences=[self._description(one) for one in found]
        )

    def _delete(self, request: Any) -> Any:
        deleted = self._store.delete(list(request.names))
        return _messages.own("DeleteSequencesResponse")(deleted=deleted)

    def _export(self, request: Any, timeout: float | None) -> Any:
        size = self._store.export(request.name, request.file, timeout)
        return _messages.own("ExportSequenceResponse")(bytes=size)

    def _import(self, request: Any, timeout: float | None) -> Any:
        limit = _given(request, "idle_limit_ms")
        name = self._store.import_(
            request.file, request.name, request.label, limit, timeout
        )
        return _messages.own("ImportSequenceResponse")(name=name)

    def _description(self, of: _native.Description) -> Any:
        name, label, heads, key_width, value_width, datatype, *rest = of
        layers, lengths, size, idle_limit, idle = rest
        form = _messages.own("SequenceForm")(
            heads=heads,
            key_width=key_width,
            value_width=value_width,
            datatype=_NUMBERS[datatype],
            layers=layers,
        )
        return _messages.own("SequenceDescription")(
            name=name,
            label=label,
            form=form,
            lengths=lengths,
            bytes=size,
            idle_limit_ms=idle_limit,
            idle_ms=idle,
            incarnation=self._store.incarnation,
        )
