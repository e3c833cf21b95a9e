"""Reads the safetensors files that attention-benchmark --save writes."""

import json
import pathlib
from collections.abc import Iterator

import ml_dtypes
import numpy as np

TYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "I8": np.dtype(np.int8),
    "I32": np.dtype(np.int32),
    "BOOL": np.dtype(np.bool_),
}
ALIGNMENT = 64  # bytes; what the peers' own allocators give


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array as the peers would have allocated it."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(shape)


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Every tensor of the file by its name."""
    with path.open("rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(header_size))
        header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            array = aligned_empty(tuple(entry["shape"]), TYPES[entry["dtype"]])
            file.seek(8 + header_size + entry["data_offsets"][0])
            file.readinto(array.reshape(-1).view(np.uint8).data)
            tensors[name] = array
    return tensors


def mask_of(
    case, tensors: dict[str, np.ndarray], folded: bool = False
) -> np.ndarray | None:
    """The case's masks as one boolean mask, True where a key takes part, or, with ALiBi,
    as what is added to scores; broadcastable to (B, H, Lq, Lk), or, where the heads of a
    group are folded into rows of one, to (B, Hkv, rows, Lk). None without masks."""
    mask = whole_mask_of(case, tensors)
    if folded and mask is not None and mask.shape[2] > 1:
        return np.tile(mask, (1, 1, case.groups, 1))
    return mask


def whole_mask_of(case, tensors: dict[str, np.ndarray]) -> np.ndarray | None:
    mask = None
    position = np.arange(case.query_length)[:, None] + case.keys - case.query_length
    key = np.arange(case.keys)[None, :]
    if case.causal:
        mask = key <= position
    if case.window_left >= 0:
        window = key >= position - case.window_left
        mask = window if mask is None else mask & window
    if mask is not None:
        mask = mask[None, None]
    if "valid_lens" in tensors:
        lengths = key[None, None] < tensors["valid_lens"][:, None, None, None]
        mask = lengths if mask is None else mask & lengths
    if not case.alibi:
        return mask
    slopes = tensors["alibi_slopes"][None, :, None, None]
    bias = (-slopes * np.abs(position - key)).astype(np.float32)
    return bias if mask is None else np.where(mask, bias, np.float32(-np.inf))


Entry = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]


def entries_of(case, tensors: dict[str, np.ndarray]) -> Iterator[Entry]:
    """Query (Hq, Lq, D), key and value (Hkv, Lk, D), as numbers, and the mask,
    (Hq, Lq, Lk) or None, of each entry of a batch, packed or not."""
    query, key, value = (stored_numbers(n, tensors) for n in ("query", "key", "value"))
    if "query_starts" not in tensors:
        mask = mask_of(case, tensors)
        if mask is not None:
            shape = (case.batch, case.query_heads, case.query_length, case.keys)
            mask = np.broadcast_to(mask, shape)
        for b in range(case.batch):
            yield query[b], key[b], value[b], None if mask is None else mask[b]
        return
    query_starts, key_starts = tensors["query_starts"], tensors["key_starts"]
    for b in range(case.batch):
        rows = slice(*query_starts[b : b + 2])
        keys = slice(*key_starts[b : b + 2])
        parts = (query[rows], key[keys], value[keys])
        yield *(part.swapaxes(0, 1) for part in parts), packed_mask(case, rows, keys)


def stored_numbers(name: str, tensors: dict[str, np.ndarray]) -> np.ndarray:
    """A tensor with its scales, where it has some, multiplied in."""
    scales = tensors.get(f"{name}_scale")
    if scales is None:
        return tensors[name]
    return tensors[name].astype(np.float32) * scales[..., None]


def packed_mask(case, rows: slice, keys: slice) -> np.ndarray | None:
    """An entry's causal mask, of which the last row sees every key."""
    if not case.causal:
        return None
    row_count, key_count = rows.stop - rows.start, keys.stop - keys.start
    mask = np.tri(row_count, key_count, key_count - row_count, dtype=bool)
    return np.broadcast_to(mask, (case.query_heads, *mask.shape))
