"""What a call does, step by step, for both clients.

A generator yields a method with its request, is sent the reply's bytes, and returns the
call's result; an AttentionError is thrown into it. A request is its bytes, or has them
by bytes(): an engine, which shares the steps on sequences, reads its tensors where they
are, and answers Attend with the Result. The clients send and wait, each in its way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, SupportsBytes, TypeAlias, TypeVar

from attention_client import _channel, _infer, _messages, _shared_memory
from attention_client._arrays import Array
from attention_client._options import Options
from attention_client._reply import TENSORS, Result, decode
from attention_client._request import Prepared, encode, prepare
from attention_client._shared_memory import Pool, Region
from attention_client.errors import (
    AlreadyExistsError,
    AttentionError,
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    UnavailableError,
)

Returned = TypeVar("Returned")
Asked: TypeAlias = bytes | SupportsBytes
Steps: TypeAlias = Generator[tuple[str, Asked], Any, Returned]

# Bytes of a request's tensors from which on shared memory is faster than the wire.
LEAST_SHARED = 256 << 10

_ALIGNMENT = 64  # bytes, of a tensor in a region

_RegisterRequest = _messages.message("inference.SystemSharedMemoryRegisterRequest")
_UnregisterRequest = _messages.message("inference.SystemSharedMemoryUnregisterRequest")


def run(steps: Steps[Returned], answer: Callable[[str, Asked], Any]) -> Returned:
    """Takes the steps, each of which is answered at once."""
    try:
        method, request = next(steps)
        while True:
            try:
                reply = answer(method, request)
            except AttentionError as error:
                method, request = steps.throw(error)
            else:
                method, request = steps.send(reply)
    except StopIteration as done:
        returned: Returned = done.value
        return returned
    finally:
        steps.close()


def attend(
    pool: Pool | None, query: Any, key: Any, value: Any, options: Options
) -> Steps[Result]:
    """One call, through shared memory where there is a pool and the server takes it."""
    request = prepare(query, key, value, options)
    if pool is not None and request.byte_size() >= LEAST_SHARED and pool.is_on():
        result = yield from _attend_shared(pool, request)
        if result is not None:
            return result
    reply = yield _channel.ATTEND, encode(request)
    return decode(reply, request.like_query)


class _NotShared(Exception):
    """It has to go over the wire."""


def _attend_shared(pool: Pool, request: Prepared) -> Steps[Result | None]:
    """None where the wire has to do."""
    given = {name: array.nbytes for name, array in request.tensors.items()}
    wanted = _infer.wanted_results(request)
    if not wanted or 0 in given.values() or 0 in wanted.values():
        return None
    yield from forget_regions(pool.unwanted())
    try:
        regions = _take(pool, _span(given), _span(wanted))
    except OSError:
        pool.pause()
        return None
    try:
        for region in regions:
            yield from _register(pool, region)
        places = _places(regions[0], given) | _places(regions[1], wanted)
        for name, array in request.tensors.items():
            _elements(regions[0].memory, places[name])[:] = array.reshape(-1).view("u1")
        answer = _infer.decode((yield _channel.INFER, _infer.encode(request, places)))
    except BaseException as error:
        for region in regions:
            # After any other error the server may be using it still.
            if isinstance(error, InvalidArgumentError):
                pool.give_back(region)
            else:
                pool.drop(region)
        if isinstance(error, _NotShared):
            pool.pause()
            return None
        if isinstance(error, UnavailableError) or (
            isinstance(error, AttentionError) and "shared memory" in error.message
        ):
            # The server went or was started anew, or the memory went away.
            pool.forget()
            return None
        raise
    pool.give_back(regions[0])
    memory = pool.lend(regions[1], _span(wanted))
    arrays: dict[str, Any] = dict.fromkeys(TENSORS)
    arrays |= {
        name: request.like_query(
            _elements(memory, places[name]).view(kind).reshape(shape)
        )
        for name, (kind, shape) in answer.results.items()
    }
    return Result(
        id=answer.id,
        **arrays,
        **answer.facts,
    )


def _take(pool: Pool, *sizes: int) -> list[Region]:
    taken: list[Region] = []
    try:
        for size in sizes:
            taken.append(pool.take(size))
    except BaseException:
        for region in taken:
            pool.drop(region)
        raise
    return taken


def _register(pool: Pool, region: Region) -> Steps[None]:
    if region.is_registered:
        return
    request = _RegisterRequest(
        name=region.name, key=f"/{region.name}", byte_size=region.size
    )
    pool.registering(region)
    try:
        yield _channel.REGISTER, request.SerializeToString()
    except (DeadlineExceededError, CancelledError):
        raise
    except AlreadyExistsError:
        pool.not_registered(region)
        raise _NotShared from None
    except AttentionError:
        raise _NotShared from None
    region.is_registered = True
    region.remove_file()
    if not pool.is_tidy:
        pool.is_tidy = True
        _shared_memory.remove_abandoned_files()


def forget_regions(names: Iterable[str]) -> Steps[None]:
    """Lets the server forget regions, as far as it can be reached."""
    for name in names:
        request = _UnregisterRequest(name=name)
        try:
            yield _channel.UNREGISTER, request.SerializeToString()
        except AttentionError:
            return


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _span(sizes: Mapping[str, int]) -> int:
    return sum(_aligned(size) for size in sizes.values())


def _places(region: Region, sizes: Mapping[str, int]) -> dict[str, _infer.Place]:
    """One after the other in the region."""
    places: dict[str, _infer.Place] = {}
    offset = 0
    for name, size in sizes.items():
        places[name] = _infer.Place(region.name, offset, size)
        offset += _aligned(size)
    return places


def _elements(memory: Array, place: _infer.Place) -> Array:
    elements: Array = memory[place.offset : place.offset + place.size]
    return elements
