"""How objects that hold arrays show themselves: by shapes, not by numbers."""

from __future__ import annotations

import dataclasses
from typing import Any


def summary(self: Any) -> str:
    """A dataclass's __repr__, with its facts and the shapes of its arrays."""
    facts = ((one.name, getattr(self, one.name)) for one in dataclasses.fields(self))
    shown = ", ".join(
        f"{name}={_shown(value)}" for name, value in facts if value is not None
    )
    return f"{type(self).__name__}({shown})"


def _shown(value: Any) -> str:
    shape, kind = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or kind is None:
        text = repr(value)
        return text if len(text) <= 80 else f"a {type(value).__name__}"
    # "float32" of numpy's and TensorFlow's, of "torch.float32" and "mlx.core.float32".
    name = getattr(kind, "name", None) or str(kind).rpartition(".")[2]
    return f"{name} {tuple(shape)}"
