"""The attention service behind Ray Serve, which starts replicas as calls queue up.

    from ray import serve
    from attention_client.serve import SERVICES, app

    serve.start(grpc_options={"port": 9000, "grpc_servicer_functions": [SERVICES]})
    serve.run(app({}))

Serve's gRPC proxy then answers as attention-server does: clients of the Open Inference
Protocol and attention_client.Client call port 9000. docs/scaling.md of the project says
what that costs. Needs the extra `serve` and the package attention-server.

A replica has an attention-server beside it, in place of an engine in its own process:
so there is one implementation of the protocol, its checks and its texts, and messages
pass through as bytes that nobody here reads.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
import grpc.aio
from ray import get_runtime_context, serve

from attention_client._channel import (
    ATTEND,
    ATTEND_STREAM,
    HEALTH,
    INFER,
    INFO,
    read_health,
)
from attention_client.errors import UnavailableError, from_rpc_error
from attention_client.server import LocalServer

# What gRPCOptions.grpc_servicer_functions names: Serve's proxy imports it.
SERVICES = "attention_client.serve.add_services"

_INFERENCE = "/inference.GRPCInferenceService/"
# What any replica answers alike. Sequences, shared memory, and what loads or unloads
# belong to one server; Serve's proxy says of those that it has no such method.
_UNARY = (
    ATTEND,
    INFO,
    HEALTH,
    INFER,
    *(
        _INFERENCE + method
        for method in (
            "ServerLive",
            "ServerReady",
            "ServerMetadata",
            "ModelReady",
            "ModelMetadata",
            "ModelConfig",
            "RepositoryIndex",
        )
    ),
)
_STREAMS = (ATTEND_STREAM, _INFERENCE + "ModelStreamInfer")
# Serve's own are not for the server, and gRPC makes its own anew.
_PASSED_ON = frozenset(
    ("authorization", "traceparent", "tracestate", "triton_grpc_error")
)
_UNLIMITED = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]
_HEALTH_TIMEOUT = 10  # seconds
# Of the replica's memory: what the server's own default takes of a container's.
_SERVERS_SHARE = 0.8
_DETAILS = "grpc-status-details-bin"


def add_services(_: object, server: Any) -> None:
    """For Serve's proxy: which methods it takes. Messages stay bytes."""
    by_service: dict[str, dict[str, grpc.RpcMethodHandler]] = {}
    for paths, make in (
        (_UNARY, grpc.unary_unary_rpc_method_handler),
        (_STREAMS, grpc.stream_stream_rpc_method_handler),
    ):
        for path in paths:
            _, service, method = path.split("/")
            # Serve has each of them call a replica in place of this None.
            by_service.setdefault(service, {})[method] = make(None)
    for service, methods in by_service.items():
        handler = grpc.method_handlers_generic_handler(service, methods)
        server.add_generic_rpc_handlers((handler,))
        for path in _STREAMS:
            if made := handler._method_handlers.get(path):  # as Serve has made it
                handler._method_handlers[path] = made._replace(
                    stream_stream=_without_empty(made.stream_stream)
                )


def _without_empty(stream: Any) -> Any:
    """Without replies that bring metadata and nothing else; no other one is empty."""

    async def call(requests: Any, context: Any) -> AsyncIterator[bytes]:
        async for reply in stream(requests, context):
            if reply:
                yield reply

    return call


class _Reply:
    """Bytes, in what Serve takes for a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializeToString(self) -> bytes:
        return self._data


class Replica:
    """A server, and the methods by which Serve's proxy calls it."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        # The actor has what Ray has set aside for it, and may not be alone there.
        share = get_runtime_context().get_assigned_resources()
        threads = max(1, math.floor(share.get("CPU", 1)))
        wanted: dict[str, Any] = {"worker_threads": threads}
        if memory := share.get("memory"):
            wanted["memory_limit"] = math.floor(_SERVERS_SHARE * memory)
        wanted.update(flags)
        # It ends with this process; Serve has had the calls finish by then.
        self._server = LocalServer(unix_socket=True, **wanted)
        self._channel: Any = None

    async def check_health(self) -> None:
        """Serve replaces a replica for which this fails."""
        if not self._server.is_running():
            raise UnavailableError("the server of this replica has ended")
        check = self._connected().unary_unary(HEALTH)
        said = read_health(await check(b"", timeout=_HEALTH_TIMEOUT))
        if said != "SERVING":
            raise UnavailableError(f"the server of this replica says {said}")

    def _connected(self) -> Any:
        if self._channel is None:  # a channel belongs to the event loop of its calls
            self._channel = grpc.aio.insecure_channel(self._server.target, _UNLIMITED)
        return self._channel

    async def _unary(self, path: str, request: bytes, context: Any) -> _Reply:
        method = self._connected().unary_unary(path)
        try:
            return _Reply(await method(request, metadata=_metadata(context)))
        except grpc.aio.AioRpcError as error:
            if self._tell(error, context):
                return _Reply(b"")  # gRPC leaves it out: the status is an error
            raise from_rpc_error(error, self._server.target) from None

    async def _stream(
        self, path: str, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[_Reply]:
        method = self._connected().stream_stream(path)
        try:
            async for reply in method(requests, metadata=_metadata(context)):
                yield _Reply(reply)
        except grpc.aio.AioRpcError as error:
            if self._tell(error, context):
                yield _Reply(b"")  # add_services() has the proxy leave it out
            raise from_rpc_error(error, self._server.target) from None

    @staticmethod
    def _tell(error: Any, context: Any) -> bool:
        """Has the caller get the server's own status; whether it has details.

        Such as when to try again. Serve passes them on with replies alone.
        """
        context.set_code(error.code())
        context.set_details(error.details())
        details = [
            pair for pair in error.trailing_metadata() or () if pair[0] == _DETAILS
        ]
        context.set_trailing_metadata(details)
        return bool(details)


def _metadata(context: Any) -> list[tuple[str, str]]:
    return [pair for pair in context.invocation_metadata() if pair[0] in _PASSED_ON]


def _add_methods() -> None:
    """Serve looks them up by the last part of their paths."""

    def unary(path: str) -> Any:
        async def call(self: Replica, request: bytes, grpc_context: Any) -> _Reply:
            return await self._unary(path, request, grpc_context)

        return call

    def stream(path: str) -> Any:
        async def call(
            self: Replica, requests: AsyncIterator[bytes], grpc_context: Any
        ) -> AsyncIterator[_Reply]:
            async for reply in self._stream(path, requests, grpc_context):
                yield reply

        return call

    for paths, make in ((_UNARY, unary), (_STREAMS, stream)):
        for path in paths:
            setattr(Replica, path.rpartition("/")[2], make(path))


_add_methods()

# Replicas follow the calls that are being computed and those that wait, at the proxy
# too: up to two for each replica none is added. Serve's configuration changes all this.
Attention = serve.deployment(
    Replica,
    name="Attention",
    max_ongoing_requests=8,
    autoscaling_config={
        "min_replicas": 1,
        "max_replicas": 8,
        "target_ongoing_requests": 2,
    },
)


def app(flags: dict[str, Any]) -> Any:
    """Serve's application: what `import_path: attention_client.serve:app` names.

    flags: of each replica's server, as of LocalServer; `args` of the configuration.
    worker_threads is the replica's num_cpus unless given, memory_limit 80 % of its
    memory, where Ray sets memory aside for it.
    """
    return Attention.bind(flags)
