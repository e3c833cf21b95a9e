"""The client for programs that wait for their answers."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Literal, overload

import grpc
from typing_extensions import Self, Unpack

from attention_client import _calls, _channel, _process, _sequence_calls
from attention_client._reply import Result
from attention_client._request import Options, Request
from attention_client._window import Window
from attention_client.errors import AttentionError, from_rpc_error
from attention_client.info import SequenceDescription, ServerInfo
from attention_client.sequence import Sequence


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
        incoming: queue.SimpleQueue[bytes | AttentionError] = queue.SimpleQueue()
        outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        stream = self._attend_stream(
            iter(outgoing.get, None), metadata=self._metadata_with(metadata)
        )
        # gRPC's own iterator waits without end.
        threading.Thread(
            target=_read, args=(stream, self.target, incoming), daemon=True
        ).start()
        source = iter(requests)
        ended = False
        try:
            with _process.under_way(stream):
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
                    _process.check(self._process)
                    while not window.is_ready():
                        window.put(_next(incoming, timeout))
                    yield window.take(return_errors)
        finally:
            outgoing.put(None)  # lets the thread go that sends
            if not self._is_inherited():
                stream.cancel()

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
        """A new Sequence: keys and values that stay on the server.

        heads, width and value_width: of keys and values, in every layer. dtype:
        "float32", "float16", "bfloat16", "int8", "float8_e4m3fn", or a type of numpy or
        PyTorch. name: in place of one of 128 random bits, which nobody can guess;
        label: what sequences() finds it by. idle_limit: seconds that it may be unused,
        in place of the server's.
        """
        name = _sequence_calls.new_name() if name is None else name
        metadata = _sequence_calls.routed(name, metadata)
        steps = _sequence_calls.create(
            heads, width, value_width, layers, dtype, name, label, idle_limit
        )
        return Sequence(self, self._run(steps, timeout, metadata))

    def open_sequence(
        self,
        name: str,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> Sequence:
        """The Sequence of a name. As a context manager it is not deleted."""
        metadata = _sequence_calls.routed(name, metadata)
        known = self._run(_sequence_calls.find(name), timeout, metadata)
        return Sequence(self, known, is_own=False)

    def import_sequence(
        self,
        file: str,
        *,
        name: str | None = None,
        label: str = "",
        idle_limit: float | None = None,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> Sequence:
        """A new Sequence of a file that Sequence.export() has written."""
        name = _sequence_calls.new_name() if name is None else name
        metadata = _sequence_calls.routed(name, metadata)
        steps = _sequence_calls.read_file(file, name, label, idle_limit)
        return Sequence(self, self._run(steps, timeout, metadata))

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
        """
        known = [sequence._known for sequence in sequences]
        steps = _sequence_calls.attend_all(known, query, layer, append, options)
        if known:
            metadata = _sequence_calls.routed(known[0].route, metadata)
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
        """Ends those that are there; how many there were."""
        deleted = 0
        for group in _sequence_calls.by_route(names):
            own = _sequence_calls.routed(group[0], metadata)
            deleted += self._run(_sequence_calls.delete(group), timeout, own)
        return deleted

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

    def _run(
        self,
        steps: _calls.Steps[_calls.Returned],
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> _calls.Returned:
        left = self._left(timeout)
        try:
            method, request = next(steps)
            while True:
                try:
                    reply = self._call(method, request, left(), metadata)
                except AttentionError as error:
                    method, request = steps.throw(error)
                else:
                    method, request = steps.send(reply)
        except StopIteration as done:
            returned: _calls.Returned = done.value
            return returned
        finally:
            steps.close()

    def _call(
        self,
        method: str,
        request: bytes,
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> bytes:
        timeout = self._seconds(timeout)
        self._check_open()
        try:
            with _process.under_way():
                reply: bytes = self._unary[method](
                    request, timeout=timeout, metadata=self._metadata_with(metadata)
                )
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.target) from None
        except ValueError:
            if self._is_closed:  # meanwhile, by another thread
                raise self._closed() from None
            raise
        return reply


def _read(
    stream: Any, target: str, incoming: queue.SimpleQueue[bytes | AttentionError]
) -> None:
    """Takes replies until the stream ends, and then says why there are no more."""
    try:
        for reply in stream:
            incoming.put(reply)
    except grpc.RpcError as error:
        incoming.put(from_rpc_error(error, target))
    else:
        incoming.put(AttentionError("the stream has ended before all replies came"))


def _next(incoming: queue.SimpleQueue[bytes | AttentionError], timeout: float) -> bytes:
    try:
        reply = incoming.get(timeout=timeout)
    except queue.Empty:
        raise _channel.no_result_within(timeout) from None
    if isinstance(reply, AttentionError):
        raise reply
    return reply
