"""The client for programs that wait for their answers."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, overload

import grpc
from typing_extensions import Self, Unpack

from attention_client import _calls, _channel, _process, _sequence_calls
from attention_client._keeps_sequences import KeepsSequences
from attention_client._options import Options, Request
from attention_client._reply import Result
from attention_client._window import END, Window
from attention_client.errors import AttentionError, from_rpc_error
from attention_client.info import ServerInfo


class Client(_channel.Caller, KeepsSequences):
    """Calls a server at target: "host:port", "unix:/path" or any other of gRPC's.

    timeout: seconds that a call may take unless it says otherwise.
    tls: True, or a Tls with files; token: what a server asks for that wants to know who
    calls. credentials: gRPC's own, in place of tls.
    shared_memory: whether large tensors go through it, where the target is on this
    machine and the server allows it.
    options: gRPC's channel options, in place of the defaults.

    One client may serve many threads. Close it, or use it as a context manager.

        with Client("127.0.0.1:8001") as client:
            output = client.attend(query, key, value, causal=True).output
    """

    @staticmethod
    def _library() -> Any:
        return grpc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends calls that run, with CancelledError."""
        self._is_closed = True
        if not self._is_inherited():
            self._channel.close()
            self._release()

    def attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Attention of the queries to the keys: a Result with .output.

        query, key and value: (B, H, L, D), (B, L, D) or (L, D), or packed, (T, H, D)
        with query_starts and key_starts; in float32, float16 or bfloat16 of ml_dtypes;
        float64 and integers are sent as float32. key and value may have another of
        these types than query, or int8 or float8_e4m3fn with key_scale and value_scale,
        as quantize() makes them. Arrays of numpy, PyTorch, JAX, MLX or TensorFlow, or
        nested lists; the result's are of the query's kind.

        Options: valid_lens, attend_mask, bias, alibi_slopes, sinks, causal,
        query_offset, query_offsets, key_offset, query_starts, key_starts, key_scale,
        value_scale, window, scale, scoring, softcap, training, dropout_p, seed,
        weights_after_dropout, empty_rows, weights, lse, top_k, key_weights, scores, id;
        attention_client.Options says what each is.
        timeout: seconds, in place of the client's. metadata: what the call sends
        beside its request, such as {"traceparent": "00-..."}, which the server's log
        repeats.

        Raises AttentionError.
        """
        steps = _calls.attend(self._pool, query, key, value, options)
        return self._run(steps, timeout, metadata)

    @overload
    def attend_many(
        self,
        requests: Iterable[Request],
        *,
        in_flight: int = ...,
        timeout: float | None = ...,
        metadata: _channel.Metadata | None = ...,
        return_errors: Literal[False] = ...,
    ) -> Iterator[Result]: ...

    @overload
    def attend_many(
        self,
        requests: Iterable[Request],
        *,
        in_flight: int = ...,
        timeout: float | None = ...,
        metadata: _channel.Metadata | None = ...,
        return_errors: Literal[True],
    ) -> Iterator[Result | AttentionError]: ...

    def attend_many(
        self,
        requests: Iterable[Request],
        *,
        in_flight: int = _channel.IN_FLIGHT,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
        return_errors: bool = False,
    ) -> Iterator[Result | AttentionError]:
        """Results of many requests over one stream, in the order of the requests.

            requests = (dict(query=q, key=k, value=v) for q, k, v in layers)
            for result in client.attend_many(requests):
                ...

        At most in_flight requests are taken before the first one's result is. An
        error of one is raised in its turn, and ends the stream; with return_errors it
        stands in place of a result, and the others go on. timeout: seconds to wait for
        each result, in place of the client's; the stream itself may last. metadata: as
        for attend, once for the stream.
        """
        self._check_open()
        timeout = max(self._seconds(timeout), 0)
        window = Window(in_flight)
        source = iter(requests)
        incoming: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()
        outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        stream = self._attend_stream(
            iter(outgoing.get, None), metadata=self._metadata_with(metadata)
        )
        ended = False
        try:
            # gRPC's own iterator waits without end.
            threading.Thread(
                target=_read, args=(stream, self.target, incoming), daemon=True
            ).start()
            with _process.under_way(stream):
                while True:
                    while not ended and not window.is_full():
                        request = next(source, END)
                        if request is END:
                            ended = True
                            outgoing.put(None)
                        elif (data := window.add(request)) is not None:
                            outgoing.put(data)
                    if window.is_empty():
                        return
                    _process.check(self._process)
                    end = time.monotonic() + timeout
                    while not window.is_ready():
                        left = max(end - time.monotonic(), 0)
                        window.put(_next(incoming, left, timeout))
                    yield window.take(return_errors)
        finally:
            outgoing.put(None)  # lets the thread go that sends
            if not self._is_inherited():
                stream.cancel()

    def info(
        self,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> ServerInfo:
        """Version, backends and limits of the server."""
        reply = self._call(_channel.INFO, b"", timeout, metadata)
        return _channel.read_info(reply)

    def health(
        self,
        service: str = "",
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> str:
        """The status of the server or of one of its services, such as "SERVING"."""
        request = _channel.health_request(service)
        reply = self._call(_channel.HEALTH, request, timeout, metadata)
        return _channel.read_health(reply)

    def _routed(
        self, name: str, metadata: _channel.Metadata | None
    ) -> _channel.Metadata:
        return _sequence_calls.routed(name, metadata)

    def _run(
        self,
        steps: _calls.Steps[_calls.Returned],
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> _calls.Returned:
        left = self._left(timeout)
        return _calls.run(
            steps,
            lambda method, asked: self._call(method, bytes(asked), left(), metadata),
        )

    def _start(
        self,
        method: str,
        request: bytes,
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> Any:
        """As _call, but a future of gRPC's, which can be cancelled.

        The caller holds _process.under_way() until it is done.
        """
        return self._send(self._unary[method].future, request, timeout, metadata)

    def _call(
        self,
        method: str,
        request: bytes,
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> bytes:
        with _process.under_way():
            reply: bytes = self._send(self._unary[method], request, timeout, metadata)
        return reply

    def _send(
        self,
        send: Callable[..., Any],
        request: bytes,
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> Any:
        """send: a method of gRPC's, or its future()."""
        timeout = self._seconds(timeout)
        self._check_open()
        try:
            return send(
                request, timeout=timeout, metadata=self._metadata_with(metadata)
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.target) from None
        except ValueError:
            if self._is_closed:  # meanwhile, by another thread
                raise self._closed() from None
            raise


def _read(
    stream: Any, target: str, incoming: queue.SimpleQueue[bytes | Exception]
) -> None:
    """Takes replies until the stream ends, and then says why there are no more."""
    try:
        try:
            for reply in stream:
                incoming.put(reply)
        except grpc.RpcError as error:
            raise from_rpc_error(error, target) from None
        raise AttentionError("the stream has ended before all replies came")
    except Exception as error:  # else the caller would wait for its whole timeout
        incoming.put(error)


def _next(
    incoming: queue.SimpleQueue[bytes | Exception], left: float, timeout: float
) -> bytes:
    """A reply that comes within the seconds that are left of a result's timeout."""
    try:
        reply = incoming.get(timeout=left)
    except queue.Empty:
        raise _channel.no_result_within(timeout) from None
    if isinstance(reply, Exception):
        raise reply
    return reply
