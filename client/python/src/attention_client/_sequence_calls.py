"""What calls on sequences do, step by step, for both clients; as in _calls.

Those with tensors are in _sequence_tensors.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from attention_client import _channel, _messages
from attention_client._calls import Returned, Steps
from attention_client._known import Known, form, route
from attention_client._options import set_field
from attention_client.errors import (
    AttentionError,
    InvalidArgumentError,
    NotFoundError,
    SequenceLostError,
)
from attention_client.info import SequenceDescription, SequenceForm

MOST_NAMES = 256  # in one call
CLEANUP = 2.0  # seconds to delete what a call that fails may have made


def new_name(of: str | None = None) -> str:
    """128 random bits, which nobody can guess; behind the route that a fork has.

    Made here, and not by the server, because a proxy must know it before.
    """
    random = secrets.token_hex(16)
    return random if of is None else f"{of}/{random}"


@dataclasses.dataclass(eq=False)
class New:
    """A sequence that a call is to make."""

    name: str
    # Whether it can be no other's: of a given name, once the server says that it is
    # made.
    is_own: bool

    @classmethod
    def of(cls, name: str | None, route: str | None = None) -> New:
        """route: that of the sequence of which it is a fork."""
        return cls(new_name(route), True) if name is None else cls(name, False)

    def made(self, name: str) -> str:
        self.name, self.is_own = name, True
        return name

    def is_left_by(self, error: BaseException) -> bool:
        """Whether the call may have made it, of which nobody would know."""
        return self.is_own and not isinstance(error, InvalidArgumentError)


def routed(name: str, metadata: _channel.Metadata | None) -> _channel.Metadata:
    """A call's metadata, with what leads a proxy to the server of a sequence."""
    own = {_channel.SEQUENCE_HEADER: where} if (where := route(name)) else {}
    return {**own, **_channel.mapping(metadata)}


def by_route(names: Iterable[str]) -> list[list[str]]:
    """Names in groups, each at one server."""
    if isinstance(names, str):
        raise InvalidArgumentError(f"names: {names!r} (expected a list of names)")
    groups: dict[str, list[str]] = {}
    text = _messages.own("DescribeSequenceRequest")()
    for number, name in enumerate(names):
        set_field(text, "name", name, f"names[{number}]")
        groups.setdefault(route(name), []).append(name)
    return list(groups.values())


def known_of(sequences: Iterable[Any]) -> list[Known]:
    """What is known of each."""
    found = []
    for number, sequence in enumerate(sequences):
        known = getattr(sequence, "_known", None)
        if not isinstance(known, Known):
            raise InvalidArgumentError(
                f"sequences[{number}]: {sequence!r} (expected what sequence() or "
                "open_sequence() gives)"
            )
        found.append(known)
    return found


def _name_and_label(message: Any, name: str, label: str | None) -> None:
    field = "new_name" if hasattr(message, "new_name") else "name"
    set_field(message, field, name, "name")
    if label is not None:
        set_field(message, "label", label, "label")


def _idle_limit(message: Any, seconds: float | None) -> None:
    if seconds is None:
        return
    try:
        milliseconds = round(seconds * 1000)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(
            f"idle_limit: {seconds!r} (expected seconds)"
        ) from None
    set_field(message, "idle_limit_ms", milliseconds, "idle_limit")


def create(
    heads: int,
    width: int,
    value_width: int | None,
    layers: int,
    dtype: Any,
    new: New,
    label: str,
    idle_limit: float | None,
) -> Steps[Known]:
    """One sequence."""
    wanted = form(heads, width, value_width, layers, dtype)
    [known] = yield from create_all(wanted, [new.name], label, idle_limit)
    new.made(known.name)
    return known


def create_all(
    form: Any, names: Iterable[str], label: str, idle_limit: float | None
) -> Steps[list[Known]]:
    """Alike ones, up to MOST_NAMES."""
    request = _messages.own("CreateSequencesRequest")()
    for name in names:
        new = request.sequences.add()
        new.form.CopyFrom(form)
        _name_and_label(new, name, label)
        _idle_limit(new, idle_limit)
    data = yield _channel.CREATE, request.SerializeToString()
    reply = _messages.own("CreateSequencesResponse").FromString(data)
    made = SequenceForm.of(form)
    return [
        Known(name, made, [0] * made.layers, reply.incarnation) for name in reply.names
    ]


def find(name: str) -> Steps[Known]:
    """One that is there."""
    described = yield from describe(name)
    return Known(
        described.name,
        described.form,
        list(described.lengths),
        described.incarnation,
    )


def describe(name: str) -> Steps[SequenceDescription]:
    request = _messages.own("DescribeSequenceRequest")()
    set_field(request, "name", name, "name")
    data = yield _channel.DESCRIBE, request.SerializeToString()
    return SequenceDescription.of(_messages.own("SequenceDescription").FromString(data))


def refresh(known: Known) -> Steps[SequenceDescription]:
    """Describes it, and takes its lengths from that."""
    described = yield from describe(known.name)
    known.lengths[:] = described.lengths
    return described


def truncate(known: Known, length: int) -> Steps[None]:
    request = _messages.own("TruncateRequest")(name=known.name)
    set_field(request, "length", length, "length")
    yield _channel.TRUNCATE, request.SerializeToString()
    known.lengths[:] = [length] * known.form.layers


def fork(
    known: Known,
    new: New,
    length: int | None,
    label: str | None,
    idle_limit: float | None,
) -> Steps[Known]:
    request = _messages.own("ForkRequest")(name=known.name)
    _name_and_label(request, new.name, label)
    _idle_limit(request, idle_limit)
    if length is not None:
        set_field(request, "length", length, "length")
    data = yield _channel.FORK, request.SerializeToString()
    made = new.made(_messages.own("ForkResponse").FromString(data).name)
    if length is None:
        # Others may have appended to the sequence.
        found = yield from find(made)
        return dataclasses.replace(found, route=known.route)
    lengths = [length] * known.form.layers
    return Known(made, known.form, lengths, known.incarnation, known.route)


def _file(message: Any, file: str | os.PathLike[str]) -> None:
    path = os.fspath(file) if isinstance(file, os.PathLike) else file
    set_field(message, "file", path, "file")
    if "\0" in message.file:  # an engine's system would take what is before it
        raise InvalidArgumentError(f"file: {file!r} (expected a name without NUL)")


def export(known: Known, file: str | os.PathLike[str]) -> Steps[int]:
    """Bytes of the file."""
    request = _messages.own("ExportSequenceRequest")(name=known.name)
    _file(request, file)
    data = yield _channel.EXPORT, request.SerializeToString()
    size: int = _messages.own("ExportSequenceResponse").FromString(data).bytes
    return size


def read_file(
    file: str | os.PathLike[str],
    new: New,
    label: str,
    idle_limit: float | None,
) -> Steps[Known]:
    """A sequence of a file."""
    request = _messages.own("ImportSequenceRequest")()
    _file(request, file)
    _name_and_label(request, new.name, label)
    _idle_limit(request, idle_limit)
    data = yield _channel.IMPORT, request.SerializeToString()
    made = new.made(_messages.own("ImportSequenceResponse").FromString(data).name)
    return (yield from find(made))


def delete(names: Iterable[str]) -> Steps[int]:
    """How many were there."""
    deleted = 0
    wanted = list(names)
    for first in range(0, len(wanted), MOST_NAMES):
        request = _messages.own("DeleteSequencesRequest")()
        for name in wanted[first : first + MOST_NAMES]:
            request.names.append(name)
        data = yield _channel.DELETE, request.SerializeToString()
        deleted += _messages.own("DeleteSequencesResponse").FromString(data).deleted
    return deleted


def list_page(
    label: str | None, label_prefix: str | None, token: str
) -> Steps[tuple[list[SequenceDescription], str]]:
    """A page, and the token of the next one, empty at the end."""
    if label is not None and label_prefix is not None:
        raise InvalidArgumentError("label: given beside label_prefix")
    request = _messages.own("ListSequencesRequest")(page_size=1000, page_token=token)
    for field, value in (("label", label), ("label_prefix", label_prefix)):
        if value is not None:
            set_field(request, field, value, field)
    data = yield _channel.LIST, request.SerializeToString()
    reply = _messages.own("ListSequencesResponse").FromString(data)
    found = [SequenceDescription.of(one) for one in reply.sequences]
    return found, reply.next_page_token


def watched(known: Sequence[Known], steps: Steps[Returned]) -> Steps[Returned]:
    """Tells a sequence that went with its server from one that was deleted."""
    try:
        return (yield from steps)
    except NotFoundError as error:
        if error.field == "parameter_set":
            raise
        lost = yield from _lost(known)
        if lost is None:
            raise
        raise SequenceLostError(f"{lost}: {error.message}") from None


def _lost(known: Sequence[Known]) -> Steps[str | None]:
    try:
        # Nothing is made, but the answer says which run of the server this is.
        data = yield _channel.CREATE, b""
    except AttentionError:
        return None
    now = _messages.own("CreateSequencesResponse").FromString(data).incarnation
    for one in known:
        if one.incarnation != now:
            return (
                f"the sequence {one.name!r} is lost: its server or engine has been "
                "started anew since, or this is another one (its incarnation was "
                f"{one.incarnation}, it is {now})"
            )
    return None
