"""One question to several servers at once, and one answer of theirs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attention_client import _channel, _messages
from attention_client._arrays import Array, to_numpy
from attention_client._calls import Steps
from attention_client._known import Known
from attention_client._merge import merged_arrays
from attention_client._options import Options, choice, window_sides
from attention_client._reply import Piece, decode_piece
from attention_client._request import encode_common, encode_own, fitting
from attention_client._wire import sendable
from attention_client.client import Client
from attention_client.errors import InvalidArgumentError
from attention_client.info import SequenceForm
from attention_client.ray import tree
from attention_client.ray.ranges import Range, Replica, Rows
from attention_client.scoring import Gaussian, ParameterSet, ScaledDotProduct

_SequenceLayer = _messages.message("attention.v1.SequenceLayer")
_Sequences = _messages.message("attention.v1.Sequences")

_OF_ONE_WIDTH = (ScaledDotProduct, Gaussian)  # functions of queries as wide as keys
AND_OTHERS = " and others"  # of a kind of calls, behind the first one's node

# What has no meaning, or another one, for a part of the keys.
_REFUSED = (
    "weights",
    "weights_after_dropout",
    "top_k",
    "key_weights",
    "scores",
    "training",
    "query_starts",
    "key_starts",
    "key_scale",
    "value_scale",
)


@dataclasses.dataclass(frozen=True)
class Question:
    """A query, and the options that each range takes its part of."""

    query: Array  # (1, Hq, Lq, D)
    length: int  # of the layer: keys that are seen
    rows: Rows
    valid: Array | None  # (1) or (1, Lq), int64
    by_key: dict[str, Array]  # attend_mask and bias, where they have a last extent
    sinks: Array | None  # (Hq)
    rest: dict[str, Any]  # as it is
    # Of ranges by their starts: keys at the server, where it has more than are seen.
    held: dict[int, int] = dataclasses.field(default_factory=dict, init=False)
    _common: dict[int, bytes] = dataclasses.field(default_factory=dict, init=False)

    @classmethod
    def of(cls, query: Array, length: int, options: Options) -> Question:
        given: dict[str, Any] = {n: v for n, v in options.items() if v is not None}
        _check(given)
        rows = _rows(given, query.shape[2], length)
        valid = None
        if "valid_lens" in given:
            valid = _lengths(given.pop("valid_lens"), query.shape[2])
            if valid.size and not 0 <= valid.min() <= valid.max() <= length:
                raise InvalidArgumentError(
                    f"valid_lens: {valid.min()} to {valid.max()} (expected 0 to "
                    f"{length}, the number of keys)"
                )
        by_key: dict[str, Array] = {}
        names: tuple[str, ...] = ("attend_mask", "bias")
        for name in names:
            if name in given:
                array = to_numpy(given[name], name)
                if array.ndim and array.shape[-1] != 1:
                    by_key[name] = _of_all_keys(array, length, name)
                    del given[name]
        sinks = None
        if "sinks" in given:
            sinks = to_numpy(given.pop("sinks"), "sinks").reshape(-1)
        if "alibi_slopes" in given:
            slopes = to_numpy(given["alibi_slopes"], "alibi_slopes")
            given["alibi_slopes"] = slopes.reshape(-1)
        sent = sendable(fitting(query, "query"), "query")  # of the output's datatype
        return cls(sent, length, rows, valid, by_key, sinks, given)

    def sees(self, part: Range) -> bool:
        """Whether some row sees one of its keys, as far as positions say."""
        count = part.count(self.length)
        if self.valid is not None:
            count = min(count, int(self.valid.max(initial=0)) - part.start)
        return self.rows.sees(part.start, max(0, count))

    def without_keys(self, form: SequenceForm) -> Piece:
        """As a server answers where no row sees a key."""
        _, heads, rows, width = self.query.shape
        if heads == 0 or heads % form.heads:
            raise InvalidArgumentError(
                f"query: {heads} heads (expected a multiple of {form.heads}, the key's)"
            )
        chosen = self.rest.get("scoring") or ScaledDotProduct()
        if isinstance(chosen, _OF_ONE_WIDTH) and width != form.key_width:
            raise InvalidArgumentError(
                f"query: width {width} (expected {form.key_width}, the key's)"
            )
        output = np.zeros((1, heads, rows, form.value_width), self.query.dtype)
        lse = np.full((1, heads, rows), -np.inf, np.float32)
        if self.sinks is not None:
            if self.sinks.size != heads:
                raise InvalidArgumentError(
                    f"sinks: shape [{self.sinks.size}] (expected [{heads}])"
                )
            lse[:] = self.sinks[:, np.newaxis]
        return Piece(output, lse, "", "", 0, 0)

    def entry_bytes(self, form: SequenceForm) -> int:
        """Of the query, or of output and lse if they are more: each range has both."""
        _, heads, rows, width = self.query.shape
        size = self.query.itemsize
        return int(heads * rows * max(size * width, size * form.value_width + 4))

    def common(self, entries: int) -> bytes:
        """Of calls about so many ranges, what encode_own(own()) completes."""
        data = self._common.get(entries)
        if data is None:
            query = np.broadcast_to(self.query, (entries, *self.query.shape[1:]))
            options: Any = {**self.rest, "lse": True}
            data = self._common[entries] = encode_common(query, options)
        return data

    def own(self, parts: Sequence[Range], *, has_sinks: bool) -> dict[str, Array]:
        """Tensors of a batch with an entry for each range."""
        starts = np.array([part.start for part in parts])
        result = {"query_offsets": self.rows.first - starts}
        counts = [part.count(self.length) for part in parts]
        if self.valid is not None:
            valid = self.valid - starts.reshape(-1, *(1,) * (self.valid.ndim - 1))
            most = np.array(counts).reshape(-1, *(1,) * (self.valid.ndim - 1))
            result["valid_lens"] = np.clip(valid, 0, most)
        else:
            # What others have appended meanwhile is not seen, and what they have cut
            # off meanwhile is an error.
            result["valid_lens"] = np.array(counts)
        for name, array in self.by_key.items():
            result[name] = self._columns(array, parts[0])
        if has_sinks and self.sinks is not None:
            sinks = np.full((len(parts), self.sinks.size), -np.inf, np.float32)
            sinks[0] = self.sinks
            result["sinks"] = sinks
        return result

    def _columns(self, array: Array, part: Range) -> Array:
        """Of a range's keys; those that are not seen have some, too."""
        count = part.count(self.length)
        seen = array[..., part.start : part.start + count]
        more = max(0, self.held.get(part.start, count) - count)
        return np.pad(seen, [(0, 0)] * (seen.ndim - 1) + [(0, more)]) if more else seen


def _check(given: dict[str, Any]) -> None:
    for name in _REFUSED:
        value = given.get(name, False)
        # An array has no truth of its own.
        plain = isinstance(value, (bool, np.bool_, int, str))
        if not plain or value not in (False, "none"):
            raise InvalidArgumentError(
                f"{name}: given for a sequence on several servers (expected none: "
                "they answer with output and lse)"
            )
    if given.get("empty_rows") == "uniform":
        raise InvalidArgumentError(
            "empty_rows: 'uniform' (expected 'zero' for a sequence on several servers)"
        )
    if isinstance(given.get("scoring"), ParameterSet):
        raise InvalidArgumentError(
            "scoring: ParameterSet (expected a scoring function with its parameters "
            "for a sequence on several servers)"
        )
    for name in (*_REFUSED, "empty_rows", "lse"):
        given.pop(name, None)


def _lengths(value: Any, rows: int) -> Array:
    """valid_lens, for every row or for each."""
    array = fitting(to_numpy(value, "valid_lens"), "valid_lens")
    if array.dtype.kind != "i":
        raise InvalidArgumentError(
            f"valid_lens: elements are {array.dtype} (expected integers)"
        )
    if array.shape not in ((1,), (1, rows)):
        expected = f"[1] or [1, {rows}]"
        if array.shape[:1] != (1,) or array.ndim > 2:
            expected = "[1, ...], the batch of query"
        raise InvalidArgumentError(
            f"valid_lens: shape {list(array.shape)} (expected {expected})"
        )
    return array.astype(np.int64)


def _rows(given: dict[str, Any], count: int, length: int) -> Rows:
    """Takes the options that say where rows stand."""
    causal = choice("causal", given.pop("causal", "none"))
    offset = given.pop("query_offset", None)
    offsets = given.pop("query_offsets", None)
    key_offset = given.pop("key_offset", 0)
    if offsets is not None:
        if offset is not None:
            raise InvalidArgumentError("query_offsets: given beside query_offset")
        array = to_numpy(offsets, "query_offsets")
        if array.shape != (1,):
            raise InvalidArgumentError(
                f"query_offsets: shape {array.shape} (expected (1,))"
            )
        offset = array[0]
    if causal == "bottom_right":
        if offset is not None or key_offset:
            name = "key_offset" if key_offset else "query_offset"
            raise InvalidArgumentError(f"{name}: given beside causal='bottom_right'")
        first = length - count
    else:
        first = integer(offset or 0, "query_offset")
        first -= integer(key_offset, "key_offset")
    if causal != "none":
        given["causal"] = "top_left"
    sides = window_sides(given["window"]) if "window" in given else {}
    left, right = (
        None if (size := sides.get(name)) in (None, -1) else integer(size, name)
        for name in ("window_left", "window_right")
    )
    return Rows(first, count, causal != "none", left, right)


def integer(value: Any, name: str) -> int:
    """What Python takes as an index."""
    try:
        return int(value.__index__())
    except AttributeError:
        raise InvalidArgumentError(f"{name}: {value!r} (expected an integer)") from None


def _of_all_keys(array: Array, length: int, name: str) -> Array:
    if array.shape[-1] != length:
        raise InvalidArgumentError(
            f"{name}: shape {array.shape} has {array.shape[-1]} keys, the sequence has "
            f"{length}"
        )
    return array


@dataclasses.dataclass
class Call:
    """Steps of a call to one server; outcome is what they return, or raise.

    elsewhere: of a read, makes the calls that ask other replicas for the same; none
    where a tree is given up, and each server asked by itself.
    replicas begins with one of the server that is called.
    """

    client: Client
    replicas: tuple[Replica, ...]  # that it reads, or appends to
    steps: Steps[Any]
    elsewhere: Callable[[], list[Call]] | None = None
    # Nodes of the servers that its server asks in turn, by their targets.
    others: dict[str, str] = dataclasses.field(default_factory=dict)
    outcome: Any = None

    @property
    def kind(self) -> str:
        """Calls of one kind take about as long."""
        node = self.replicas[0].node
        return node + AND_OTHERS if self.others else node

    @property
    def kinds(self) -> tuple[str, ...]:
        """Its own, and those of calls that take no longer: to one server of a tree."""
        if not self.others:
            return (self.kind,)
        return (self.kind, self.replicas[0].node, *self.others.values())

    @property
    def failed_node(self) -> str:
        """Of an outcome that is an error."""
        node = self.replicas[0].node
        return self.others.get(self.outcome.server, node)


def merge(pieces: Sequence[Piece]) -> Piece:
    """Of batches with an entry for each range: (1, Hq, Lq, Dv) of all of them."""
    outputs = [entry for piece in pieces for entry in piece.output]
    if len(outputs) == 1:
        return pieces[0]
    lses = np.concatenate([piece.lse for piece in pieces]).astype(np.float64)
    output, lse = merged_arrays(outputs, lses)
    return dataclasses.replace(
        pieces[0],
        output=output[np.newaxis],
        lse=lse[np.newaxis],
        queue_ns=max(piece.queue_ns for piece in pieces),
        compute_ns=max(piece.compute_ns for piece in pieces),
    )


def known(form: SequenceForm, replica: Replica) -> Known:
    """A replica as a sequence of its server."""
    return Known(replica.name, form, [0] * form.layers, 0)


def attend(
    question: Question,
    parts: Sequence[tuple[Range, Replica]],
    layer: int,
    *,
    has_sinks: bool,
) -> Steps[Piece]:
    """Of ranges at one server."""
    own = _own(question, parts, layer, has_sinks)
    answer = yield _channel.ATTEND, question.common(len(parts)) + own
    return decode_piece(answer)


def attend_tree(
    question: Question,
    servers: Sequence[tuple[str, Sequence[tuple[Range, Replica]]]],
    layer: int,
    *,
    has_sinks: bool,
) -> Steps[Piece]:
    """Of ranges at several servers, the first of which asks the others.

    servers: the target of each, and its ranges.
    """
    parts = [
        (
            target,
            [
                _own(question, [part], layer, has_sinks and not server and not number)
                for number, part in enumerate(of_server)
            ],
        )
        for server, (target, of_server) in enumerate(servers)
    ]
    answer = yield _channel.ATTEND_SHARDS, tree.request(question.common(1), parts)
    return decode_piece(answer)


def _own(
    question: Question,
    parts: Sequence[tuple[Range, Replica]],
    layer: int,
    has_sinks: bool,
    rows: dict[str, Array] | None = None,
    position: int | None = None,
) -> bytes:
    entries = _entries(tuple(one.name for _, one in parts), layer, position)
    ranges = [part for part, _ in parts]
    return encode_own(entries, question.own(ranges, has_sinks=has_sinks), rows)


def _entries(names: tuple[str, ...], layer: int, position: int | None) -> bytes:
    """Of a Sequences message. Those that are read are the same for many calls."""
    return (_read_entries if position is None else _made_entries)(
        names, layer, position
    )


def _made_entries(names: tuple[str, ...], layer: int, position: int | None) -> bytes:
    entries = [_SequenceLayer(name=n, layer=layer, position=position) for n in names]
    data: bytes = _Sequences(entries=entries).SerializeToString()
    return data


_read_entries = functools.lru_cache(maxsize=4096)(_made_entries)


def attend_appended(
    question: Question,
    part: tuple[Range, Replica],
    layer: int,
    rows: dict[str, Array],
    position: int,
    *,
    has_sinks: bool,
) -> Steps[Piece]:
    """Of one range, whose new keys come with the question; position is in it."""
    own = _own(question, [part], layer, has_sinks, rows, position)
    answer = yield _channel.ATTEND, question.common(1) + own
    return decode_piece(answer)
