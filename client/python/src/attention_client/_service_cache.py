"""A cache of Hugging Face models whose keys and values are elsewhere."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence as List
from typing import Any

import torch
from transformers import Cache, PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin
from typing_extensions import Self

from attention_client import _known, _sequence_calls
from attention_client._default import default_client
from attention_client._keeps_sequences import KeepsSequences
from attention_client._options import Options
from attention_client._reply import Result
from attention_client.sequence import Sequence

# Layers that see keys by their positions alone, which the mask says.
_LAYER_TYPES = {"full_attention", "sliding_attention", "chunked_attention"}


class Stored(torch.Tensor):  # type: ignore[misc]
    """Stands for all keys, or values, of a layer: some are here, most on the server.

    It has a shape, a datatype and a device, and no elements.
    """

    store: _Store
    layer: int
    rows: tuple[torch.Tensor, torch.Tensor]

    @staticmethod
    def __new__(
        cls: type[Stored],
        of: torch.Tensor,
        store: _Store,
        layer: int,
        rows: tuple[torch.Tensor, torch.Tensor],
    ) -> Stored:
        *batch, length, width = of.shape
        self: Stored = torch.Tensor._make_wrapper_subclass(
            cls,
            (*batch, store.length + length, width),
            dtype=of.dtype,
            device=of.device,
        )
        self.store, self.layer, self.rows = store, layer, rows
        return self

    def __repr__(self, **_: Any) -> str:
        return f"Stored(layer={self.layer}, shape={tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any) -> Any:
        raise RuntimeError(
            f"{function}: the keys of a ServiceCache are not here (expected a "
            "model with the attention that attention_client.transformers.register() "
            'has registered: attn_implementation="attention_service")'
        )


class _Store:
    """The sequences of a cache, one for each entry of the batch."""

    def __init__(
        self, client: KeepsSequences, layers: int, label: str, idle_limit: float | None
    ) -> None:
        if not isinstance(client, KeepsSequences):
            raise TypeError(
                f"client: {client!r} keeps no sequences (expected a server's Client, "
                "or an Engine)"
            )
        self.client = client
        self.layers = layers
        self.label = label
        self.idle_limit = idle_limit
        self.sequences: list[Sequence] = []
        # Whether a call has failed: some layers may have keys that others lack.
        self.is_torn = False

    @property
    def length(self) -> int:
        """Keys that all layers have."""
        return len(self.sequences[0]) if self.sequences else 0

    def update(
        self, layer: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[Stored, Stored]:
        if not self.sequences:
            self._create(key, value)
        # A model that was interrupted between two layers begins again with the first.
        is_new = layer == 0 and max(self.sequences[0].lengths) > self.length
        if self.is_torn or is_new:
            self.truncate(self.length)
        if key.shape[0] != len(self.sequences):
            raise ValueError(
                f"key: a batch of {key.shape[0]} (expected {len(self.sequences)}, as "
                "the cache has)"
            )
        if self.sequences[0].lengths[layer] != self.length:
            raise ValueError(
                f"layer {layer} is updated again before every layer was (expected a "
                "model all of whose layers have keys of their own)"
            )
        rows = key, value
        return Stored(key, self, layer, rows), Stored(value, self, layer, rows)

    def attend(self, key: Stored, query: Any, options: Options) -> Result:
        """Appends what update() was given, and computes."""
        try:
            return self.client.attend_sequences(
                self.sequences, query, key.layer, append=key.rows, **options
            )
        except BaseException:
            self.is_torn = True
            raise

    def truncate(self, length: int) -> None:
        # The first last: it says how long the cache is, so that what fails on the way
        # can be repeated.
        self.is_torn = True
        for sequence in reversed(self.sequences):
            sequence.truncate(length)
        self.is_torn = False

    def picked(self, entries: List[int], *, keep: bool) -> list[Sequence]:
        """Sequences as these entries have them; keep: where that does, their own."""
        made: list[Sequence] = []
        kept: set[int] = set()
        found: list[Sequence] = []
        try:
            for entry in entries:
                sequence = self.sequences[entry]
                if not keep or entry in kept:
                    sequence = sequence.fork(length=self.length)
                    made.append(sequence)
                kept.add(entry)
                found.append(sequence)
        except BaseException:
            self.delete(made)
            raise
        return found

    def pick(self, entries: List[int]) -> None:
        """Makes the batch one of these entries."""
        if not self.sequences:
            return
        found = self.picked(entries, keep=True)
        kept = {sequence.name for sequence in found}
        gone = [one for one in self.sequences if one.name not in kept]
        self.sequences = found
        self.delete(gone)

    def delete(
        self, sequences: List[Sequence], *, timeout: float | None = None
    ) -> None:
        if sequences:
            names = [sequence.name for sequence in sequences]
            self.client.delete_sequences(names, timeout=timeout)

    def clear(self) -> None:
        self.delete(self.sequences)  # where that fails, they are there for a next try
        self.sequences = []
        self.is_torn = False

    def _create(self, key: torch.Tensor, value: torch.Tensor) -> None:
        batch, heads, _, width = key.shape
        kind = torch.float32 if key.dtype == torch.float64 else key.dtype
        form = _known.form(heads, width, value.shape[-1], self.layers, kind)
        name = _sequence_calls.new_name()
        metadata = self.client._routed(name, None)  # all of them at one server
        names = [f"{name}/{number}" for number in range(batch)]
        made: list[Sequence] = []
        try:
            for first in range(0, batch, _sequence_calls.MOST_NAMES):
                group = names[first : first + _sequence_calls.MOST_NAMES]
                steps = _sequence_calls.create_all(
                    form, group, self.label, self.idle_limit
                )
                known = self.client._run(steps, None, metadata)
                made += [Sequence(self.client, one) for one in known]
        except BaseException:
            with contextlib.suppress(Exception):
                self.client.delete_sequences(names, timeout=_sequence_calls.CLEANUP)
            raise
        self.sequences = made


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer of the cache, as transformers asks for it."""

    is_croppable = True
    is_sliding = False  # it keeps all keys; the mask says which are seen

    def __init__(self, store: _Store, layer: int) -> None:
        super().__init__()
        self._store = store
        self._layer = layer

    def lazy_initialization(self, *_: Any) -> None:
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.is_initialized = True
        return self._store.update(self._layer, key_states, value_states)

    def get_seq_length(self, *_: Any) -> int:
        return self._store.length

    def get_mask_sizes(self, query_length: int | torch.Tensor) -> tuple[int, int]:
        # Earlier releases give the queries' positions.
        if isinstance(query_length, torch.Tensor):
            query_length = query_length.shape[0]
        return self._store.length + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:
        return -1


class ServiceCache(Cache):  # type: ignore[misc]
    """A cache for generate() whose keys and values stay on a server, or in an engine.

    config: the model's, which has the attention that register() has registered.
    client: None means attention_client.torch's default. label, idle_limit: as in
    Client.sequence().

    Each entry of the batch is a Sequence; `sequences` has them once there are keys. As
    a context manager it deletes them at the end; otherwise they go with the cache.

        register(client)
        model = AutoModelForCausalLM.from_pretrained(
            path, attn_implementation="attention_service"
        )
        with ServiceCache(model.config, client) as cache:
            model.generate(**inputs, past_key_values=cache)
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        client: KeepsSequences | None = None,
        *,
        label: str = "",
        idle_limit: float | None = None,
    ) -> None:
        config = config.get_text_config(decoder=True)
        layers = config.num_hidden_layers
        others = set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES
        if getattr(config, "num_kv_shared_layers", 0):
            others.add("layers that share keys")
        if others:
            raise ValueError(
                f"config: {', '.join(sorted(others))} (expected layers of "
                f"{', '.join(sorted(_LAYER_TYPES))})"
            )
        self._take(_Store(client or default_client(), layers, label, idle_limit))

    def _take(self, store: _Store) -> None:
        super().__init__(layers=[_Layer(store, n) for n in range(store.layers)])
        self._store = store
        self._end = weakref.finalize(self, _end, store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if failure is None:
            self.reset()
        else:
            _end(self._store)  # what has failed before is more telling

    def __deepcopy__(self, _: object) -> ServiceCache:
        return self.fork()

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        return tuple(self._store.sequences)

    def fork(self) -> ServiceCache:
        """One with the same keys, in the same memory, which goes its own way.

        copy.deepcopy() makes such a one, too.
        """
        own = self._store
        store = _Store(own.client, own.layers, own.label, own.idle_limit)
        store.sequences = own.picked(range(len(own.sequences)), keep=False)
        forked = type(self).__new__(type(self))
        forked._take(store)
        return forked

    def reset(self) -> None:
        """Deletes the sequences; the cache is empty then."""
        self._store.clear()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Each entry's keys become those of another; beam search calls it."""
        self._store.pick(beam_idx.tolist())

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps these entries of the batch."""
        entries = torch.arange(len(self._store.sequences), device=indices.device)
        self._store.pick(entries[indices].tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each entry so often, one after the other; they share memory."""
        entries = range(len(self._store.sequences))
        self._store.pick([entry for entry in entries for _ in range(repeats)])

    def crop(self, tokens_to_remove: int) -> None:
        """Takes away the last tokens, whose number is given as a negative one."""
        if tokens_to_remove > 0:
            raise ValueError(
                f"tokens_to_remove: {tokens_to_remove} (expected 0 or less)"
            )
        if tokens_to_remove < 0:
            self._store.truncate(max(0, self._store.length + tokens_to_remove))


def _end(store: _Store) -> None:
    sequences, store.sequences = store.sequences, []
    # The client may be closed, and the server gone; else they go when they are idle.
    with contextlib.suppress(Exception):
        store.delete(sequences, timeout=2)
