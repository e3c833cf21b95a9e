"""What both clients make their channels and calls with."""

from __future__ import annotations

import json
import numbers
import os
import re
import secrets
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import grpc

from attention_client import _messages, _process
from attention_client._shared_memory import Pool, is_local, is_supported
from attention_client._tls import Tls
from attention_client.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
)
from attention_client.info import ServerInfo

ATTEND = "/attention.v1.AttentionService/Attend"
ATTEND_STREAM = "/attention.v1.AttentionService/AttendStream"
ATTEND_SHARDS = "/attention.v1.ShardService/Attend"
INFO = "/attention.v1.AttentionService/GetServerInfo"
HEALTH = "/grpc.health.v1.Health/Check"
INFER = "/inference.GRPCInferenceService/ModelInfer"
REGISTER = "/inference.GRPCInferenceService/SystemSharedMemoryRegister"
UNREGISTER = "/inference.GRPCInferenceService/SystemSharedMemoryUnregister"
_KEYS = "/attention.v1.KeyValueService/"
CREATE = _KEYS + "Create"
APPEND = _KEYS + "Append"
TRUNCATE = _KEYS + "Truncate"
FORK = _KEYS + "Fork"
DESCRIBE = _KEYS + "Describe"
LIST = _KEYS + "List"
DELETE = _KEYS + "Delete"
EXPORT = _KEYS + "Export"
IMPORT = _KEYS + "Import"
ON_KEYS = (CREATE, APPEND, TRUNCATE, FORK, DESCRIBE, LIST, DELETE, EXPORT, IMPORT)
UNARY = (ATTEND, ATTEND_SHARDS, INFO, HEALTH, INFER, REGISTER, UNREGISTER, *ON_KEYS)

# What a call sends beside its request, such as {"traceparent": "00-..."}; keys that
# end in -bin have bytes.
Metadata: TypeAlias = Mapping[str, str | bytes]

# By which a proxy finds the server that has a sequence: what its name has before "/".
SEQUENCE_HEADER = "attention-sequence"

TIMEOUT = 60.0  # seconds
LONGEST_TIMEOUT = 365 * 24 * 3600.0  # the C++ library's, too
IN_FLIGHT = 16  # of attend_many; the server's own limit is 32 unless configured

# The same as the C++ library's: a request may be computed twice without harm. Not so
# where its results go to shared memory: the first computation might still write there.
# Keys are appended at positions, where the same ones are acknowledged; what makes a
# sequence might make two.
_RETRIES = {
    "methodConfig": [
        {
            "name": [
                {"service": "attention.v1.AttentionService"},
                {"service": "grpc.health.v1.Health"},
                *(
                    {
                        "service": "attention.v1.KeyValueService",
                        "method": path.rpartition("/")[2],
                    }
                    for path in (APPEND, TRUNCATE, DESCRIBE, LIST, DELETE, EXPORT)
                ),
            ],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}

_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.service_config", json.dumps(_RETRIES)),
    # A larger message is not sent again; gRPC's default is 256 KiB.
    ("grpc.per_rpc_retry_buffer_size", 256 << 20),
    # A connection that a network has dropped is noticed while calls wait on it.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Newer gRPC waits as long as this for a ping, a minute by itself.
    ("grpc.http2.ping_timeout_ms", 10_000),
    # A server that was away is found soon after its return; gRPC would wait ever
    # longer, up to two minutes. grpc.min_reconnect_backoff_ms, in spite of its name, is
    # how long a connection may take to be made, and stays at gRPC's 20 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]

_UnregisterRequest = _messages.message("inference.SystemSharedMemoryUnregisterRequest")
_HealthCheckRequest = _messages.message("grpc.health.v1.HealthCheckRequest")
_HealthCheckResponse = _messages.message("grpc.health.v1.HealthCheckResponse")
_GetServerInfoResponse = _messages.message("attention.v1.GetServerInfoResponse")


# With a resolver of gRPC's, which URIs that people have from browsers do not name; or
# HOST:PORT, [IPV6]:PORT. gRPC takes more: without a port it calls port 443, and of a
# port above 65535 it takes the last 16 bits.
_TARGET = re.compile(
    r"(?:unix|unix-abstract|dns|ipv4|ipv6|vsock):.+|(?!https?:)[a-z][a-z0-9+.-]*://.+"
    r"|(?:\[[^\]/]+\]|[^:/\s]+):([0-9]{1,5})"
)


def _is_target(target: str) -> bool:
    match = _TARGET.fullmatch(target)
    return match is not None and 1 <= int(match[1] or 1) <= 65535


# What gRPC sends of metadata.
_KEY = re.compile(r"[a-z0-9_.-]+")
_TEXT = re.compile(r"[ -~]*")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None


# All that there are: PyTorch's operator takes numbers for them.
CLIENTS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def number_of(client: Any) -> int:
    """The client's number, which no other one has.

    An exported program outlives its client, and its process: counted numbers, or id(),
    would come again, and its tensors go to whoever has its number then.
    """
    number = getattr(client, "_number", None)
    if number is None or CLIENTS.get(number) is not client:
        client._number = number = secrets.randbits(63)
        CLIENTS[number] = client
    return number


class Caller:
    """What both clients are made of: a channel, its methods, and shared memory."""

    def __init__(
        self,
        target: str,
        *,
        timeout: float = TIMEOUT,
        tls: Tls | bool | None = False,
        token: str | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        shared_memory: bool = True,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        _process.check_new()
        if not isinstance(target, str) or not _is_target(target):
            raise InvalidArgumentError(
                f"target: {target!r} (expected HOST:PORT, such as '127.0.0.1:8001', or "
                "'unix:/path')"
            )
        self.target = target
        self.timeout = _checked_timeout(timeout)
        if timeout <= 0:
            raise InvalidArgumentError(f"timeout: {timeout!r} (expected more than 0 s)")
        if token is not None and not _is_text(token):
            raise InvalidArgumentError(
                "token: it cannot be sent (expected text of printable ASCII characters "
                "alone, without the line's end of a file that it was read from)"
            )
        # What a copy in another process is made with, beside target and timeout.
        self._settings: dict[str, Any] = {
            "tls": tls,
            "token": token,
            "credentials": credentials,
            "shared_memory": shared_memory,
            "options": options,
        }
        local = is_local(target)
        if tls is not None and not isinstance(tls, (bool, Tls)):
            raise InvalidArgumentError(
                f"tls: {tls!r} (expected True, False or Tls(ca=...))"
            )
        if tls and credentials is not None:
            raise ValueError("credentials: given beside tls (expected one of them)")
        if tls:
            credentials = (Tls() if tls is True else tls).credentials()
        if token is not None and credentials is None and not local:
            raise ValueError(
                f"token: without tls it could be read on its way to {target} (expected "
                "tls, or a server on this machine)"
            )
        self._metadata = (
            () if token is None else (("authorization", f"Bearer {token}"),)
        )
        own = dict(_OPTIONS)
        if local:
            # No proxy of the environment (http_proxy) comes in between.
            own["grpc.enable_http_proxy"] = 0
        settings = list((own | dict(options)).items())

        def open_channel(library: Any) -> Any:
            if credentials is None:
                return library.insecure_channel(target, settings)
            return library.secure_channel(target, credentials, settings)

        self._open_channel = open_channel
        self._channel: Any = None
        self._is_closed = False
        self._process = os.getpid()
        number_of(self)
        self._made()
        shares = shared_memory and local and is_supported()
        self._pool = Pool() if shares else None
        # At the latest when the program ends.
        self._release = weakref.finalize(
            self, _release, self._pool, open_channel, self._metadata
        )

    def __repr__(self) -> str:
        usual: dict[str, Any] = {"tls": False, "token": None, "credentials": None}
        usual |= {"shared_memory": True, "options": ()}
        settings = {
            name: value
            for name, value in self._settings.items()
            if value != usual[name]
        }
        if "token" in settings:
            settings["token"] = "..."
        shown = "".join(f", {name}={value!r}" for name, value in settings.items())
        closed = ", closed" if self._is_closed else ""
        name = type(self).__name__
        return f"{name}({self.target!r}, timeout={self.timeout:g}{shown}{closed})"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: a copy opens a channel of its own, with the same settings."""
        if self._settings["credentials"] is not None:
            raise TypeError(
                "a client with gRPC's credentials cannot be pickled or copied "
                "(expected tls=Tls(...), whose files its copy reads, or a client that "
                "is made where it is used)"
            )
        return {"target": self.target, "timeout": self.timeout, **self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Caller.__init__(self, **state)

    @staticmethod
    def _library() -> Any:
        raise NotImplementedError

    def _made(self) -> None:
        """Once all is known that a channel needs."""
        self._open()

    def _open(self) -> None:
        self._channel = self._open_channel(self._library())
        _process.keep(self._channel)
        # Bytes in and out: without serializers gRPC leaves them as they are.
        self._unary = {path: self._channel.unary_unary(path) for path in UNARY}
        self._attend_stream = self._channel.stream_stream(ATTEND_STREAM)

    def _metadata_with(
        self, metadata: Metadata | None
    ) -> tuple[tuple[str, str | bytes], ...]:
        """The client's own and a call's."""
        return (*self._metadata, *checked(metadata).items())

    def _is_inherited(self) -> bool:
        return self._process != os.getpid()

    def _check_open(self) -> None:
        _process.check(self._process)
        if self._is_closed:
            raise self._closed()

    def _closed(self) -> CancelledError:
        return CancelledError(
            f"this client of {self.target} is closed (expected calls before close() or "
            "the end of its context; a new client would do)"
        )

    def _seconds(self, timeout: float | None) -> float:
        """A call's timeout, or the client's."""
        return _checked_timeout(self.timeout if timeout is None else timeout)

    def _left(self, timeout: float | None) -> Callable[[], float]:
        """How many seconds are left of a call's timeout."""
        end = time.monotonic() + self._seconds(timeout)
        return lambda: end - time.monotonic()


def mapping(metadata: Metadata | None) -> Metadata:
    """A call's metadata; gRPC itself takes pairs, of which one key may have several."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidArgumentError(
            f"metadata: {type(metadata).__name__} (expected a mapping, such as "
            "{'traceparent': '00-...'})"
        )
    return metadata


def checked(metadata: Metadata | None) -> dict[str, str | bytes]:
    """mapping() of what gRPC sends."""
    own = dict(mapping(metadata))
    for key, value in own.items():
        _check_metadata(key, value)
    return own


def _check_metadata(key: Any, value: Any) -> None:
    """gRPC says no more of what it does not send than that it is invalid.

    Values are not shown: they may be secrets, and errors end up in logs.
    """
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        expected = "a key of lower-case letters, digits, '-', '_' and '.'"
    elif key.endswith("-bin"):
        if isinstance(value, bytes):
            return
        expected = "bytes, as its key ends in -bin"
    else:
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        if _is_text(text):
            return
        expected = "text of printable ASCII characters"
    raise InvalidArgumentError(
        f"metadata: {key!r}: it cannot be sent (expected {expected})"
    )


def _checked_timeout(timeout: float) -> float:
    # What is not a number is no less than one, either.
    if not isinstance(timeout, numbers.Real) or not timeout <= LONGEST_TIMEOUT:
        raise InvalidArgumentError(
            f"timeout: {timeout!r} (expected seconds, at most {LONGEST_TIMEOUT:.0f}: a "
            "year)"
        )
    return float(timeout)


def _release(
    pool: Pool | None,
    open_channel: Callable[[Any], Any],
    metadata: tuple[tuple[str, str], ...],
) -> None:
    """Lets the server forget the regions of a client that goes."""
    if pool is None or not pool.is_own():
        return
    pool.close()
    names = pool.names()
    if not names:
        return
    with open_channel(grpc) as channel:
        unregister = channel.unary_unary(UNREGISTER)
        for name in names:
            request = _UnregisterRequest(name=name).SerializeToString()
            try:
                unregister(request, timeout=2, metadata=metadata)
            except grpc.RpcError:
                return  # it has ended, too


def no_result_within(timeout: float) -> DeadlineExceededError:
    return DeadlineExceededError(f"no result came within {timeout:g} s")


def health_request(service: str) -> bytes:
    data: bytes = _HealthCheckRequest(service=service).SerializeToString()
    return data


def read_health(data: bytes) -> str:
    response = _HealthCheckResponse.FromString(data)
    status = _HealthCheckResponse.ServingStatus.Name(response.status)
    return str(status)


def read_info(data: bytes) -> ServerInfo:
    return ServerInfo.of(_GetServerInfoResponse.FromString(data))
