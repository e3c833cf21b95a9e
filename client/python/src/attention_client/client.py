"""The client for programs that wait for their answers."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator
from typing import Any, Literal, overload

import grpc
from typing_extensions import Self, Unpack

from attention_client import _calls, _channel
from attention_client._reply import Result
from attention_client._request import Options, Request
from attention_client._window import Window
from attention_client.errors import AttentionError, from_rpc_error
from attention_client.info import ServerInfo


class Client(_channel.Caller):
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
        self._channel.close()
        self._release()

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
        bfloat16 of ml_dtypes; float64 is sent as float32. Arrays of numpy, PyTorch,
        JAX, MLX or TensorFlow, or nested lists; the result's are of the query's kind.

        Options: valid_lens, attend_mask, bias, alibi_slopes, sinks, causal,
        query_offset, query_offsets, key_offset, window, scale, scoring, softcap,
        training, dropout_p, seed, weights_after_dropout, empty_rows, weights, lse, id;
        attention_client.Options says what each is. timeout: seconds, in place of the
        client's.

        Raises AttentionError.
        """
        steps = _calls.attend(self._pool, query, key, value, options)
        return self._run(steps, timeout)

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
        stream = self._attend_stream(
            iter(outgoing.get, None), timeout=timeout, metadata=self._metadata
        )
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
        return _channel.read_info(self._call(_channel.INFO, b"", timeout))

    def health(self, service: str = "", *, timeout: float | None = None) -> str:
        """The status of the server or of one of its services, such as "SERVING"."""
        request = _channel.health_request(service)
        return _channel.read_health(self._call(_channel.HEALTH, request, timeout))

    def _run(
        self, steps: _calls.Steps[_calls.Returned], timeout: float | None
    ) -> _calls.Returned:
        left = self._left(timeout)
        try:
            method, request = next(steps)
            while True:
                try:
                    reply = self._call(method, request, left())
                except AttentionError as error:
                    method, request = steps.throw(error)
                else:
                    method, request = steps.send(reply)
        except StopIteration as done:
            returned: _calls.Returned = done.value
            return returned
        finally:
            steps.close()

    def _call(self, method: str, request: bytes, timeout: float | None) -> bytes:
        if timeout is None:
            timeout = self.timeout
        try:
            reply: bytes = self._unary[method](
                request, timeout=timeout, metadata=self._metadata
            )
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
