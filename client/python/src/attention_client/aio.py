"""The client for asyncio: the same calls, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, Literal, overload

import grpc
from typing_extensions import Self, Unpack

from attention_client import (
    _calls,
    _channel,
    _process,
    _sequence_calls,
    _sequence_tensors,
)
from attention_client._feed import AsyncFeed, EndedError, Feed, Outgoing
from attention_client._known import Known
from attention_client._options import Options, Request
from attention_client._reply import Result
from attention_client._window import Window
from attention_client.aio_sequence import AsyncSequence
from attention_client.errors import (
    AttentionError,
    FailedPreconditionError,
    from_rpc_error,
)
from attention_client.info import SequenceDescription, ServerInfo


class AsyncClient(_channel.Caller):
    """Client's twin. It belongs to the event loop of its first call.

    async with AsyncClient("127.0.0.1:8001") as client:
        output = (await client.attend(query, key, value)).output
    """

    @staticmethod
    def _library() -> Any:
        return grpc.aio

    def _made(self) -> None:
        """A channel of gRPC's belongs to an event loop, which may not run yet."""
        self._feeds: set[Feed | AsyncFeed] = set()

    def _check_open(self) -> None:
        super()._check_open()
        loop = asyncio.get_running_loop()
        if self._channel is None:
            self._open()
            self._loop = loop
            _process.keep_asyncio(self, is_open=True)
        elif self._loop is not loop:
            raise FailedPreconditionError(
                f"this client of {self.target} has made calls in another event loop "
                "(expected a client of its own for each asyncio.run())"
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends calls that run."""
        self._is_closed = True
        _process.keep_asyncio(self, is_open=False)
        if not self._is_inherited():
            if self._channel is not None:
                await self._channel.close()
            for feed in tuple(self._feeds):
                await feed.close()
            await asyncio.to_thread(self._release)

    async def attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """As Client.attend. Cancelling the task ends the call on the server, too."""
        steps = _calls.attend(self._pool, query, key, value, options)
        return await self._run(steps, timeout, metadata)

    @overload
    def attend_many(
        self,
        requests: Iterable[Request] | AsyncIterable[Request],
        *,
        in_flight: int = ...,
        timeout: float | None = ...,
        metadata: _channel.Metadata | None = ...,
        return_errors: Literal[False] = ...,
    ) -> AsyncIterator[Result]: ...

    @overload
    def attend_many(
        self,
        requests: Iterable[Request] | AsyncIterable[Request],
        *,
        in_flight: int = ...,
        timeout: float | None = ...,
        metadata: _channel.Metadata | None = ...,
        return_errors: Literal[True],
    ) -> AsyncIterator[Result | AttentionError]: ...

    async def attend_many(
        self,
        requests: Iterable[Request] | AsyncIterable[Request],
        *,
        in_flight: int = _channel.IN_FLIGHT,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
        return_errors: bool = False,
    ) -> AsyncIterator[Result | AttentionError]:
        """As Client.attend_many; the requests may come from an async iterator.

        Each result is given as soon as it is the first in order and has come, also
        while an async iterator waits for its next request. The iterator runs in a task
        of its own, which ends, with an async generator's finally, before the results
        do. What it raises is raised at once.
        """
        self._check_open()
        timeout = self._seconds(timeout)
        beside = self._metadata_with(metadata)
        window = Window(in_flight)
        outgoing: Outgoing = asyncio.Queue()
        feed: Feed | AsyncFeed = (
            AsyncFeed(requests, window, outgoing)
            if isinstance(requests, AsyncIterable)
            else Feed(requests, window, outgoing)
        )
        stream = self._attend_stream(_taken_from(outgoing), metadata=beside)
        _process.keep(stream)
        self._feeds.add(feed)
        try:
            while await feed.more():
                _process.check(self._process)
                end = self._loop.time() + timeout
                while not window.is_ready():
                    left = end - self._loop.time()
                    window.put(await self._read(feed, stream, left, timeout))
                yield window.take(return_errors)
        except EndedError:
            if self._is_closed:
                raise self._closed() from None
            raise asyncio.CancelledError from None
        finally:
            self._feeds.discard(feed)
            if not self._is_inherited():
                stream.cancel()
                outgoing.put_nowait(None)  # lets the task go that sends
                await feed.close()

    async def sequence(
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
    ) -> AsyncSequence:
        """As Client.sequence."""
        new = _sequence_calls.New.of(name)
        metadata = _sequence_calls.routed(new.name, metadata)
        steps = _sequence_calls.create(
            heads, width, value_width, layers, dtype, new, label, idle_limit
        )
        return await self._make(new, steps, timeout, metadata)

    async def open_sequence(
        self,
        name: str,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> AsyncSequence:
        """As Client.open_sequence."""
        metadata = _sequence_calls.routed(name, metadata)
        known = await self._run(_sequence_calls.find(name), timeout, metadata)
        return AsyncSequence(self, known, is_own=False)

    async def import_sequence(
        self,
        file: str | os.PathLike[str],
        *,
        name: str | None = None,
        label: str = "",
        idle_limit: float | None = None,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> AsyncSequence:
        """As Client.import_sequence."""
        new = _sequence_calls.New.of(name)
        metadata = _sequence_calls.routed(new.name, metadata)
        steps = _sequence_calls.read_file(file, new, label, idle_limit)
        return await self._make(new, steps, timeout, metadata)

    async def attend_sequences(
        self,
        sequences: Iterable[AsyncSequence],
        query: Any,
        layer: int = 0,
        append: tuple[Any, Any] | None = None,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """As Client.attend_sequences."""
        known = _sequence_calls.known_of(sequences)
        steps = _sequence_tensors.attend_all(known, query, layer, append, options)
        if known:
            metadata = _sequence_calls.routed(known[0].route, metadata)
        return await self._run(_sequence_calls.watched(known, steps), timeout, metadata)

    async def sequences(
        self,
        *,
        label: str | None = None,
        label_prefix: str | None = None,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> AsyncIterator[SequenceDescription]:
        """As Client.sequences."""
        token: str | None = ""
        while token is not None:
            steps = _sequence_calls.list_page(label, label_prefix, token)
            page, following = await self._run(steps, timeout, metadata)
            for one in page:
                yield one
            token = following or None

    async def delete_sequences(
        self,
        names: Iterable[str],
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> int:
        """As Client.delete_sequences."""
        deleted = 0
        left = self._left(timeout)
        for group in _sequence_calls.by_route(names):
            own = _sequence_calls.routed(group[0], metadata)
            deleted += await self._run(_sequence_calls.delete(group), left(), own)
        return deleted

    async def info(
        self,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> ServerInfo:
        """As Client.info."""
        reply = await self._call(_channel.INFO, b"", timeout, metadata)
        return _channel.read_info(reply)

    async def health(
        self,
        service: str = "",
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> str:
        """As Client.health."""
        request = _channel.health_request(service)
        reply = await self._call(_channel.HEALTH, request, timeout, metadata)
        return _channel.read_health(reply)

    async def _make(
        self,
        new: _sequence_calls.New,
        steps: _calls.Steps[Known],
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> AsyncSequence:
        """What the steps make; nothing is left of it where they fail."""
        try:
            return AsyncSequence(self, await self._run(steps, timeout, metadata))
        except BaseException as error:
            if new.is_left_by(error):
                deletion = _sequence_calls.delete([new.name])
                with contextlib.suppress(Exception):
                    await self._run(deletion, _sequence_calls.CLEANUP, metadata)
            raise

    async def _run(
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
                    reply = await self._call(method, bytes(request), left(), metadata)
                except AttentionError as error:
                    method, request = steps.throw(error)
                else:
                    method, request = steps.send(reply)
        except StopIteration as done:
            returned: _calls.Returned = done.value
            return returned
        finally:
            steps.close()

    async def _call(
        self,
        method: str,
        request: bytes,
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> bytes:
        timeout = self._seconds(timeout)
        self._check_open()
        call = self._unary[method](
            request, timeout=timeout, metadata=self._metadata_with(metadata)
        )
        # Not the call itself: asyncio tells its end by close() and a cancellation of
        # this task alike. A task for each call would tell them apart, but takes longer.
        try:
            await call.code()
        except BaseException:
            call.cancel()
            raise
        if self._is_closed and call.cancelled():
            raise self._closed()
        try:
            reply: bytes = await call
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.target) from None
        return reply

    async def _read(
        self, feed: Feed | AsyncFeed, stream: Any, left: float, timeout: float
    ) -> bytes:
        """left: seconds, of a result's timeout."""
        try:
            reply = await feed.reply(stream.read(), left)
        except asyncio.TimeoutError:
            raise _channel.no_result_within(timeout) from None
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.target) from None
        if not isinstance(reply, bytes):  # grpc.aio.EOF
            raise AttentionError("the stream has ended before all replies came")
        return reply


async def _taken_from(outgoing: Outgoing) -> AsyncIterator[bytes]:
    while (data := await outgoing.get()) is not None:
        yield data
