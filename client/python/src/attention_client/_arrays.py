"""Arrays of other libraries as numpy's, and back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from attention_client.errors import InvalidArgumentError

Array = NDArray[Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT8 = np.dtype(ml_dtypes.float8_e4m3fn)


def is_tensor(value: object) -> bool:
    """Whether it is PyTorch's, which another thread may be importing right now."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


def _library(value: object) -> str:
    if is_tensor(value):
        return "torch"  # also of a subclass, which any module may have
    return type(value).__module__.partition(".")[0]


def gradients_are_refused(name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name}: requires gradients (expected a tensor without: the service "
        "computes none; call detach(), work under torch.no_grad(), or ask "
        "attention_client.torch for gradients=True)"
    )


def _from_torch(value: Any, name: str) -> Array:
    torch = sys.modules["torch"]
    if value.requires_grad and torch.is_grad_enabled():
        raise gradients_are_refused(name)
    if is_causal_bias(value):
        raise InvalidArgumentError(
            f"{name}: PyTorch's CausalBias (expected causal='top_left' or "
            "'bottom_right' in its place)"
        )
    return torch_elements(value.detach().cpu().resolve_neg().contiguous())


def is_causal_bias(tensor: Any) -> bool:
    """Whether it is PyTorch's CausalBias, a tensor without elements of its own."""
    return type(tensor).__name__ == "CausalBias"


def torch_elements(tensor: Any) -> Array:
    """The memory of a PyTorch tensor on the CPU that needs no gradients."""
    torch = sys.modules["torch"]
    if tensor.dtype == torch.bfloat16:
        halves: Array = tensor.view(torch.int16).numpy()
        return halves.view(BFLOAT16)
    if tensor.dtype == torch.float8_e4m3fn:
        eighths: Array = tensor.view(torch.int8).numpy()
        return eighths.view(FLOAT8)
    array: Array = tensor.numpy()
    return array


def to_numpy(value: Any, name: str) -> Array:
    """The value as numpy's array, without a copy where that is possible."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise InvalidArgumentError(
                f"{name}: a masked array (expected an array without a mask: which keys "
                "take part is said by attend_mask or valid_lens, and filled() puts "
                "numbers where elements are masked)"
            )
        return np.asarray(value.data)
    if isinstance(value, np.ndarray):
        return value
    if value is None:
        raise InvalidArgumentError(f"{name}: None (expected an array)")
    if _library(value) == "torch":
        return _from_torch(value, name)
    if _library(value) == "mlx" and value.dtype == sys.modules["mlx.core"].bfloat16:
        halves: Array = np.asarray(value.view(sys.modules["mlx.core"].uint16))
        return halves.view(BFLOAT16)
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{name}: no array (expected one, or lists of equal lengths: {error})"
        ) from None


def like(value: Any) -> Callable[[Array], Any]:
    """What makes a numpy array one of the value's library, on its device."""
    if type(value) is np.ndarray:
        return _as_it_is
    library = _library(value)
    if library == "torch":
        return lambda array: _to_torch(array, value.device)
    if library in ("jax", "jaxlib"):
        return _to_jax
    if library == "mlx":
        return _to_mlx
    if library == "tensorflow":
        return lambda array: sys.modules["tensorflow"].convert_to_tensor(array)
    return _as_it_is


def _as_it_is(array: Array) -> Array:
    return array


def _to_torch(array: Array, device: Any) -> Any:
    torch: Any = sys.modules["torch"]
    if array.dtype == BFLOAT16:
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    elif array.dtype == FLOAT8:
        tensor = torch.from_numpy(array.view(np.int8)).view(torch.float8_e4m3fn)
    else:
        tensor = torch.from_numpy(array)
    return tensor.to(device)


def _to_jax(array: Array) -> Any:
    import jax.numpy

    return jax.numpy.asarray(array)


def _to_mlx(array: Array) -> Any:
    mlx: Any = sys.modules["mlx.core"]
    if array.dtype == BFLOAT16:
        return mlx.array(array.view(np.uint16)).view(mlx.bfloat16)
    return mlx.array(array)
