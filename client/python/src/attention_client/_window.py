"""The bookkeeping of attend_many, for both clients."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, cast

from attention_client._options import Options, Request
from attention_client._reply import Result, decode_streamed
from attention_client._request import Prepared, encode, prepare
from attention_client.errors import AttentionError, InvalidArgumentError

END: Any = object()  # in place of a request, where there are no more


class Window:
    """Requests that were sent and whose outcomes were not taken yet, in order."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"in_flight: {size} (expected 1 or more)")
        self._size = size
        self._count = 0
        self._sent: OrderedDict[str | int, Prepared | None] = OrderedDict()
        self._outcomes: dict[str | int, Result | AttentionError] = {}

    def is_full(self) -> bool:
        return len(self._sent) >= self._size

    def is_empty(self) -> bool:
        return not self._sent

    def add(self, request: Request) -> bytes | None:
        """The bytes to send; None where the request cannot be sent.

        Its outcome is then an error, in its turn.
        """
        self._count += 1
        try:
            return self._encoded(request)
        except AttentionError as error:
            self._refuse(error)
        except Exception as error:  # such as TypeError of an unknown option
            made = InvalidArgumentError(f"request {self._count}: {error}")
            made.__cause__ = error
            self._refuse(made)
        return None

    def _encoded(self, request: Request) -> bytes:
        try:
            options: dict[str, Any] = {**request}
        except TypeError:
            raise InvalidArgumentError(
                f"request {self._count}: {type(request).__name__} (expected "
                "dict(query=..., key=..., value=...) with options)"
            ) from None
        name = options["id"] = options.get("id") or self._free_name()
        if not isinstance(name, str):
            raise InvalidArgumentError(
                f"id: {name!r} (expected text, such as {str(name)!r})"
            )
        if name in self._sent:
            raise InvalidArgumentError(
                f"id: {name!r} is in flight already (expected one of its own)"
            )
        missing = [n for n in ("query", "key", "value") if n not in options]
        if missing:
            raise InvalidArgumentError(f"{missing[0]}: missing")
        query, key, value = (options.pop(n) for n in ("query", "key", "value"))
        prepared = prepare(query, key, value, cast(Options, options))
        data = encode(prepared)
        self._sent[name] = prepared
        return data

    def _free_name(self) -> str:
        """For a request without one: such a name may have been given to another."""
        number = self._count
        while (name := f"request {number}") in self._sent:
            number += 1
        return name

    def _refuse(self, error: AttentionError) -> None:
        self._sent[self._count] = None  # a number, which no request has for a name
        self._outcomes[self._count] = error

    def is_ready(self) -> bool:
        """Whether take() has something to give."""
        return bool(self._sent) and next(iter(self._sent)) in self._outcomes

    def put(self, data: bytes) -> None:
        """Takes a reply."""
        name, outcome = decode_streamed(data)
        prepared = self._sent.get(name)
        if prepared is None or name in self._outcomes:
            # Of no request of ours: the stream as a whole is broken.
            raise (
                outcome
                if isinstance(outcome, AttentionError)
                else AttentionError(f"a reply to {name!r}, which was not asked for")
            )
        if isinstance(outcome, AttentionError):
            self._outcomes[name] = outcome
        else:
            self._outcomes[name] = outcome(prepared.like_query)

    def take(self, return_errors: bool) -> Result | AttentionError:
        """The outcome of the first request; raises its error unless told otherwise."""
        name, _ = self._sent.popitem(last=False)
        outcome = self._outcomes.pop(name)
        if isinstance(outcome, AttentionError) and not return_errors:
            raise outcome
        return outcome
