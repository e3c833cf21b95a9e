"""Reads the safetensors files that attention-benchmark --save writes."""

import json
import pathlib

import ml_dtypes
import numpy as np

TYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
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


def mask_of(case, tensors: dict[str, np.ndarray]) -> np.ndarray | None:
    """The case's masks as one boolean mask, True where a key takes part, or, with ALiBi,
    as what is added to scores; broadcastable to (B, H, Lq, Lk). None without masks."""
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
