"""Keys and values that stay on the server, for asyncio: the same calls, awaited."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from typing_extensions import Self, Unpack

from attention_client import _channel, _sequence_calls, _sequence_tensors
from attention_client._calls import Returned, Steps
from attention_client._handle import Handle
from attention_client._known import Known
from attention_client._options import Options
from attention_client._reply import Result
from attention_client.errors import AttentionError
from attention_client.info import SequenceDescription

if TYPE_CHECKING:
    from attention_client.aio import AsyncClient


class AsyncSequence(Handle):
    """Sequence's twin.

    async with await client.sequence(heads=8, width=128) as sequence:
        await sequence.append(key, value)
        output = (await sequence.attend(query)).output
    """

    def __init__(
        self,
        client: AsyncClient,
        known: Known,
        *,
        is_own: bool = True,
    ) -> None:
        super().__init__(known, is_own=is_own)
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, failure: object, *_: object) -> None:
        if not self._is_own:
            return
        try:
            await self.delete()
        except AttentionError:
            if failure is None:
                raise

    async def append(
        self,
        key: Any,
        value: Any,
        layer: int = 0,
        position: int | None = None,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> int:
        """As Sequence.append."""
        steps = _sequence_tensors.append(self._known, key, value, layer, position)
        return await self._run(steps, timeout, metadata)

    async def attend(
        self,
        query: Any,
        layer: int = 0,
        append: tuple[Any, Any] | None = None,
        position: int | None = None,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """As Sequence.attend."""
        steps = _sequence_tensors.attend(
            self._known, query, layer, append, position, options
        )
        return await self._run(steps, timeout, metadata)

    async def fork(
        self,
        name: str | None = None,
        length: int | None = None,
        *,
        label: str | None = None,
        idle_limit: float | None = None,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> AsyncSequence:
        """As Sequence.fork."""
        new = _sequence_calls.New.of(name, self._known.route)
        steps = _sequence_calls.fork(self._known, new, length, label, idle_limit)
        watched = _sequence_calls.watched([self._known], steps)
        metadata = _sequence_calls.routed(self._known.route, metadata)
        return await self._client._make(new, watched, timeout, metadata)

    async def truncate(
        self,
        length: int,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> None:
        """As Sequence.truncate."""
        steps = _sequence_calls.truncate(self._known, length)
        await self._run(steps, timeout, metadata)

    async def describe(
        self,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> SequenceDescription:
        """As Sequence.describe."""
        return await self._run(_sequence_calls.refresh(self._known), timeout, metadata)

    async def export(
        self,
        file: str | os.PathLike[str],
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> int:
        """As Sequence.export."""
        steps = _sequence_calls.export(self._known, file)
        return await self._run(steps, timeout, metadata)

    async def delete(
        self,
        *,
        timeout: float | None = None,
        metadata: _channel.Metadata | None = None,
    ) -> None:
        """As Sequence.delete."""
        await self._client.delete_sequences(
            [self.name],
            timeout=timeout,
            metadata=_sequence_calls.routed(self._known.route, metadata),
        )

    async def _run(
        self,
        steps: Steps[Returned],
        timeout: float | None,
        metadata: _channel.Metadata | None,
    ) -> Returned:
        watched = _sequence_calls.watched([self._known], steps)
        metadata = _sequence_calls.routed(self._known.route, metadata)
        return await self._client._run(watched, timeout, metadata)
