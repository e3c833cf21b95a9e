"""Arrays by name in .npz and .safetensors files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attention_client._arrays import Array


def read(path: str) -> dict[str, Array]:
    """All arrays of a file. ValueError for a file of another kind."""
    if _kind(path) == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    from safetensors.numpy import load_file

    arrays: dict[str, Array] = load_file(path)
    return arrays


def write(path: str, arrays: dict[str, Array]) -> None:
    """Writes a file, in place of one that is there."""
    if _kind(path) == ".npz":
        np.savez(path, allow_pickle=False, **arrays)
        return
    from safetensors.numpy import save_file

    save_file(arrays, path)


def _kind(path: str) -> str:
    kind = Path(path).suffix
    if kind not in (".npz", ".safetensors"):
        raise ValueError(f"{path}: {kind!r} (expected .npz or .safetensors)")
    return kind
