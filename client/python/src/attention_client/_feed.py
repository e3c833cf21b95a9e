"""How AsyncClient.attend_many takes requests: of an iterable, or of an async one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Iterable
from typing import Any, TypeAlias

from attention_client._options import Request
from attention_client._window import END, Window

# What is to be sent, and None after the last of it.
Outgoing: TypeAlias = "asyncio.Queue[bytes | None]"


class EndedError(Exception):
    """What a task waits for was cancelled, not the task; asyncio tells them alike."""


class Feed:
    """Takes requests of an iterable while their window has room."""

    def __init__(
        self, requests: Iterable[Request], window: Window, outgoing: Outgoing
    ) -> None:
        self._source = iter(requests)
        self._window = window
        self._outgoing = outgoing
        self._is_ended = False

    async def more(self) -> bool:
        """Whether there is a result to wait for. The caller is done with the last."""
        while not self._is_ended and not self._window.is_full():
            request = next(self._source, END)
            if request is END:
                self._is_ended = True
                self._outgoing.put_nowait(None)
            else:
                _send(request, self._window, self._outgoing)
        return not self._window.is_empty()

    async def reply(self, reading: Awaitable[Any], timeout: float) -> Any:
        """What reading gives, or an asyncio.TimeoutError."""
        return await reply_of(reading, timeout)

    async def close(self) -> None:
        """Takes no more."""


class AsyncFeed:
    """Feed's twin, whose source holds up no result while it waits.

    The source runs in a task of its own, one for all requests: what it has entered,
    such as asyncio.timeout(), belongs to the task that entered it.
    """

    def __init__(
        self, requests: AsyncIterable[Request], window: Window, outgoing: Outgoing
    ) -> None:
        self._window = window
        self._outgoing = outgoing
        self._is_closed = False
        self._has_room = asyncio.Event()
        self._has_news = asyncio.Event()  # a request, or that there are no more
        self._task = asyncio.create_task(self._take(requests))
        self._task.add_done_callback(lambda _: self._has_news.set())

    async def _take(self, requests: AsyncIterable[Request]) -> None:
        source = aiter(requests)
        try:
            async for request in source:
                if self._is_closed:  # but the source went on when it was cancelled
                    return
                _send(request, self._window, self._outgoing)
                self._has_news.set()
                while self._window.is_full():
                    self._has_room.clear()
                    await self._has_room.wait()
            self._outgoing.put_nowait(None)
        finally:
            if isinstance(source, AsyncGenerator):
                await source.aclose()

    async def more(self) -> bool:
        """As Feed.more. Raises what the source has raised."""
        # Not before: with in_flight=1 a request may follow from what the caller did.
        self._has_room.set()
        while self._window.is_empty() and not self._task.done():
            self._has_news.clear()
            await self._has_news.wait()
        if self._task.done():
            _result(self._task)
        return not self._window.is_empty()

    async def reply(self, reading: Awaitable[Any], timeout: float) -> Any:
        """As Feed.reply. Raises what the source raises first."""
        return await reply_of(reading, timeout, self._task)

    async def close(self) -> None:
        """Cancels the source. asyncio logs an error of it that nobody has got."""
        self._is_closed = True
        self._task.cancel()
        await asyncio.wait({self._task})


async def reply_of(
    reading: Awaitable[Any],
    timeout: float,
    source: asyncio.Task[None] | None = None,
) -> Any:
    """What reading gives. An EndedError where it, or the source, was cancelled.

    asyncio.wait_for() loses a cancellation that comes together with the reply, until
    Python 3.12.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    read = asyncio.ensure_future(reading)
    awaited = {read} if source is None else {read, source}
    try:
        while not read.done():
            left = end - loop.time()
            first = asyncio.FIRST_COMPLETED
            done, _ = await asyncio.wait(awaited, timeout=left, return_when=first)
            if not done:
                raise asyncio.TimeoutError
            if source is not None and read not in done:
                _result(source)
                awaited = {read}
        return _result(read)
    except BaseException:
        read.cancel()
        await asyncio.gather(read, return_exceptions=True)
        raise


def _result(task: asyncio.Future[Any]) -> Any:
    if task.cancelled():
        raise EndedError
    return task.result()


def _send(request: Request, window: Window, outgoing: Outgoing) -> None:
    if (data := window.add(request)) is not None:
        outgoing.put_nowait(data)
