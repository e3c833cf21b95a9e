"""What a call may fail with. All are AttentionErrors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from attention_client import _messages

# What servers say of methods that they lack, gRPC's own in C++ nothing at all.
_NO_METHOD = re.compile(
    r"$|Method not found!|unknown (service|method)|Received http2 header"
)
_TOO_LARGE = re.compile(
    r"(?:SERVER: )?Received message larger than max \((\d+) vs\. (\d+)"
)
_SHARD_ERROR = "attention.v1.ShardError"
_FIELD = re.compile(r"([a-z][a-z0-9_]*(?:[.\[][a-z0-9_.\[\]]+)?): ")


_MISTAKES = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.OUT_OF_RANGE,
)


class AttentionError(Exception):
    """A call has failed.

    code: the grpc.StatusCode.
    message: what was wrong, and what was expected.
    field: the request's field at fault, such as "key"; None where it is none.
    retry_after: seconds after which trying again makes sense; None where unknown.
    server: of a call that a server made to another one, or a Ray cluster's map to one,
    where that failed: the one that was called, "host:port"; else None.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
    server: str | None = None

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.retry_after = retry_after

    @property
    def field(self) -> str | None:
        # The API promises it for mistakes in a request, and for those alone.
        if self.code not in _MISTAKES:
            return None
        found = _FIELD.match(self.message)
        return found[1] if found else None


class InvalidArgumentError(AttentionError, ValueError):
    """The request is wrong; sending it again will not help."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFoundError(AttentionError, LookupError):
    """The server has no parameter set, sequence or file of that name."""

    code = grpc.StatusCode.NOT_FOUND


class SequenceLostError(NotFoundError):
    """A sequence went with the server that had it: another one answers now."""


class KeysLostError(SequenceLostError):
    """Keys of a sequence on several servers went with the server that had them.

    missing: their positions, pairs of the first one and the one after the last.
    """

    def __init__(self, message: str, missing: tuple[tuple[int, int], ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class AlreadyExistsError(AttentionError):
    """There is one of that name, where a new one was to be made."""

    code = grpc.StatusCode.ALREADY_EXISTS


class AbortedError(AttentionError):
    """Other keys are where keys were to be appended.

    Or a sequence that is imported is deleted meanwhile.

    appended: of a sequence on several servers, how many of the rows are in, the first
    ones: those of earlier ranges.
    """

    code = grpc.StatusCode.ABORTED
    appended: int = 0


class OutOfRangeError(AttentionError, IndexError):
    """A place behind the end of a sequence."""

    code = grpc.StatusCode.OUT_OF_RANGE


class FailedPreconditionError(AttentionError):
    """The state of things does not allow the call; another request will not help.

    The server has no folder for files of sequences; the folder of an export is gone or
    cannot be written; the process was forked; the engine is closed; or an AsyncClient
    is called in another event loop than its own.
    """

    code = grpc.StatusCode.FAILED_PRECONDITION


class ResourceExhaustedError(AttentionError):
    """The request is larger than a limit, or the server is full."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnavailableError(AttentionError, ConnectionError):
    """No server answers, or it is draining; later, or another one, will do."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceededError(AttentionError, TimeoutError):
    """The call's timeout has passed."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class CancelledError(AttentionError):
    """The call was cancelled."""

    code = grpc.StatusCode.CANCELLED


class UnauthenticatedError(AttentionError, PermissionError):
    """The server wants to know who calls: the token or certificate is none it knows."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDeniedError(AttentionError, PermissionError):
    """The server knows who calls, and this caller may not do this."""

    code = grpc.StatusCode.PERMISSION_DENIED


class UnimplementedError(AttentionError):
    """This build of the server lacks what was asked for."""

    code = grpc.StatusCode.UNIMPLEMENTED


_CLASSES: dict[grpc.StatusCode, type[AttentionError]] = {
    kind.code: kind
    for kind in (
        InvalidArgumentError,
        NotFoundError,
        AlreadyExistsError,
        AbortedError,
        OutOfRangeError,
        FailedPreconditionError,
        ResourceExhaustedError,
        UnavailableError,
        DeadlineExceededError,
        CancelledError,
        UnauthenticatedError,
        PermissionDeniedError,
        UnimplementedError,
    )
}
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def from_status(
    code: grpc.StatusCode, message: str, retry_after: float | None = None
) -> AttentionError:
    """The exception for a gRPC status."""
    kind = _CLASSES.get(code, AttentionError)
    return kind(message, code=code, retry_after=retry_after)


def from_number(
    code: int, message: str, retry_after: float | None = None
) -> AttentionError:
    """Likewise, for a code's number."""
    known = _CODES.get(code, grpc.StatusCode.UNKNOWN)
    return from_status(known, message, retry_after)


def from_streamed(error: Any) -> AttentionError:
    """Likewise, for a stream's Error."""
    wait = error.retry_after_ms / 1000 if error.HasField("retry_after_ms") else None
    return from_number(error.code, error.message, wait)


def from_rpc_error(error: Any, target: str) -> AttentionError:
    """Likewise, for what gRPC raises in a call to target."""
    message = _told(error.code(), error.details() or "", target)
    details = list(_details(error))
    made = from_status(error.code(), message, _retry_after(details))
    for shard in _of_kind(_messages.message(_SHARD_ERROR), details):
        made.server = shard.target
    return made


def _told(code: grpc.StatusCode, message: str, target: str) -> str:
    """What gRPC itself says, in words that say what to do; others' as they are."""
    if code == grpc.StatusCode.UNIMPLEMENTED and _NO_METHOD.match(message):
        said = message or "nothing more"
        return (
            f"{target} has no such method: it is no attention server, or an older one "
            "than this client (expected the address and port where attention-server "
            f"serves gRPC; it said: {said})"
        )
    if too_large := _TOO_LARGE.match(message):
        size, most = too_large.groups()
        return (
            f"a request of {size} bytes, where {target} takes {most} (expected fewer "
            "entries, heads or queries in each call, or a server with a larger "
            "--max-request-bytes)"
        )
    if code == grpc.StatusCode.DEADLINE_EXCEEDED and message == "Deadline Exceeded":
        return f"{target} has not answered in time (timeout= gives it longer)"
    return message


# What cannot be read is left out: it must not take the place of the status itself.


def _details(error: Any) -> Iterator[Any]:
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            with contextlib.suppress(DecodeError):
                yield from status_pb2.Status.FromString(value).details


def _of_kind(kind: Any, details: Iterable[Any]) -> Iterator[Any]:
    for detail in details:
        message = kind()
        with contextlib.suppress(DecodeError):
            if detail.Unpack(message):
                yield message


def _retry_after(details: Iterable[Any]) -> float | None:
    """Seconds of the status's google.rpc.RetryInfo, where it has one."""
    for info in _of_kind(error_details_pb2.RetryInfo, details):
        delay = info.retry_delay
        return float(delay.seconds + delay.nanos / 1e9)
    return None
