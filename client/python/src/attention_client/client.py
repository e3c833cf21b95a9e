"""The client for programs that wait for their answers."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, overload

import grpc
from typing_extensions import Self, Unpack

from attention_client import _channel
from attention_client._reply import Result, decode
from attention_client._request import Options, Request, encode
from attention_client._window import Window
from attention_client.errors import AttentionError, from_rpc_error
from attention_client.info import ServerInfo


class Client:
    """Calls a server at target: "host:port", "unix:/path" or any other of gRPC's.

    timeout: seconds that a call may take unless it says otherwise.
    credentials: of gRPC, for an encrypted channel to a proxy; None: no encryption.
    options: gRPC's channel options, in place of the defaults.

    One client may serve many threads. Close it, or use it as a context manager.

        with Client("127.0.0.1:8001") as client:
            output = client.attend(query, key, value, causal=True).output
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float = _channel.TIMEOUT,
        credentials: grpc.ChannelCredentials | None = None,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self.target = target
        self.timeout = timeout
        settings = _channel.channel_options(options)
        if credentials is None:
            self._channel = grpc.insecure_channel(target, settings)
        else:
            self._channel = grpc.secure_channel(target, credentials, settings)
        # Bytes in and out: without serializers gRPC leaves them as they are.
        self._attend = self._channel.unary_unary(_channel.ATTEND)
        self._attend_stream = self._channel.stream_stream(_channel.ATTEND_STREAM)
        self._info = self._channel.unary_unary(_channel.INFO)
        self._health = self._channel.unary_unary(_channel.HEALTH)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends calls that run, with CancelledError."""
        self._channel.close()

    def attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        *,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Attention of the queries to the keys: a Result with .output.

        query, key and value: (B, H, L, D), (B, L, D) or (L, D), in float32, float16 or
        bfloat16 of ml_dtypes; float64 is sent as float32. Arrays of numpy, PyTorch, JAX
        or MLX, or nested lists; the result's are of the query's kind.

        Options: valid_lens, attend_mask, bias, alibi_slopes, sinks, causal,
        query_offset, query_offsets, key_offset, window, scale, scoring, softcap,
        training, dropout_p, seed, weights_after_dropout, empty_rows, weights, lse, id;
        attention_client.Options says what each is. timeout: seconds, in place of the
        client's.

        Raises AttentionError.
        """
        encoded = encode(query, key, value, options)
        reply = self._call(self._attend, encoded.data, timeout)
        return decode(reply, encoded.like_query)

    @overload
    def attend_many(
        self,
        requests: Iterable[Request],
        *,
        in_flight: int = ...,
        timeout: float | None = ...,
        return_errors: Literal[False] = ...,
    ) -> Iterator[Result]: ...

    @overload
    def attend_many(
        self,
        requests: Iterable[Request],
        *,
        in_flight: int = ...,
        timeout: float | None = ...,
        return_errors: Literal[True],
    ) -> Iterator[Result | AttentionError]: ...

    def attend_many(
        self,
        requests: Iterable[Request],
        *,
        in_flight: int = _channel.IN_FLIGHT,
        timeout: float | None = None,
        return_errors: bool = False,
    ) -> Iterator[Result | AttentionError]:
        """Results of many requests over one stream, in the order of the requests.

            requests = (dict(query=q, key=k, value=v) for q, k, v in layers)
            for result in client.attend_many(requests):
                ...

        At most in_flight requests are taken before the first one's result is. An
        error of one is raised in its turn, and ends the stream; with return_errors it
        stands in place of a result, and the others go on. timeout is that of the whole
        stream, in seconds; None: no end.
        """
        window = Window(in_flight)
        outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        stream = self._attend_stream(iter(outgoing.get, None), timeout=timeout)
        source = iter(requests)
        ended = False
        try:
            while True:
                while not ended and not window.is_full():
                    request = next(source, None)
                    if request is None:
                        ended = True
                        outgoing.put(None)
                    elif (data := window.add(request)) is not None:
                        outgoing.put(data)
                if window.is_empty():
                    return
                while not window.is_ready():
                    window.put(_next(stream))
                yield window.take(return_errors)
        finally:
            outgoing.put(None)  # lets the thread go that sends
            stream.cancel()

    def info(self, *, timeout: float | None = None) -> ServerInfo:
        """Version, backends and limits of the server."""
        return _channel.read_info(self._call(self._info, b"", timeout))

    def health(self, service: str = "", *, timeout: float | None = None) -> str:
        """The status of the server or of one of its services, such as "SERVING"."""
        request = _channel.health_request(service)
        return _channel.read_health(self._call(self._health, request, timeout))

    def _call(self, method: Any, request: bytes, timeout: float | None) -> bytes:
        if timeout is None:
            timeout = self.timeout
        try:
            reply: bytes = method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        return reply


def _next(stream: Any) -> bytes:
    try:
        reply: bytes | None = next(stream, None)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
    if reply is None:
        raise AttentionError("the stream has ended before all replies came")
    return reply
