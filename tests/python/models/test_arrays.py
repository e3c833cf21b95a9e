"""Arrays of other libraries: they come back as what they were."""

import jax.numpy
import ml_dtypes
import mlx.core
import numpy as np
import pytest
import tensorflow
import torch

from attention_client import quantize

LIBRARIES = {
    "PyTorch": (torch.from_numpy, torch.bfloat16, lambda x, kind: x.to(kind)),
    "JAX": (jax.numpy.asarray, jax.numpy.bfloat16, lambda x, kind: x.astype(kind)),
    "TensorFlow": (tensorflow.constant, tensorflow.bfloat16, tensorflow.cast),
    "MLX": (mlx.core.array, mlx.core.bfloat16, lambda x, kind: x.astype(kind)),
}


@pytest.fixture(params=LIBRARIES)
def library(request):
    return LIBRARIES[request.param]


def test_results_are_of_the_querys_kind(client, normal, library):
    make, _, _ = library
    tensors = normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 4)
    lengths, mask = np.array([2, 5], np.int32), np.arange(15).reshape(3, 5) % 4 > 0
    options = {"weights": True, "lse": True}
    masks = {"valid_lens": lengths, "attend_mask": mask}
    expected = client.attend(*tensors, **masks, **options)
    given = {name: make(array) for name, array in masks.items()}
    result = client.attend(*map(make, tensors), **given, **options)
    for name in ("output", "weights", "lse"):
        array = getattr(result, name)
        assert type(array) is type(make(tensors[0]))
        np.testing.assert_array_equal(np.asarray(array), getattr(expected, name))


def test_bfloat16_comes_back_as_it_went(client, normal, library):
    make, bfloat16, cast = library
    x = normal(2, 3, 4)
    half = x.astype(ml_dtypes.bfloat16)
    expected = client.attend(half, half, half, weights=True)
    halves = [cast(make(x), bfloat16)] * 3
    result = client.attend(*halves, weights=True)
    assert result.output.dtype == bfloat16
    back = np.asarray(cast(result.output, make(x).dtype))
    np.testing.assert_array_equal(back, expected.output.astype(np.float32))
    np.testing.assert_array_equal(np.asarray(result.weights), expected.weights)


@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn])
def test_pytorch_quantizes_to_its_own_types(client, normal, kind):
    query, rows = normal(2, 3, 4), normal(2, 5, 4)
    elements, scales = quantize(torch.from_numpy(rows), kind)
    assert elements.dtype == kind
    assert scales.dtype == torch.float32
    expected, expected_scales = quantize(rows, kind)
    np.testing.assert_array_equal(scales.numpy(), expected_scales)
    scaled = {"key_scale": scales, "value_scale": scales}
    result = client.attend(torch.from_numpy(query), elements, elements, **scaled)
    same = {"key_scale": expected_scales, "value_scale": expected_scales}
    other = client.attend(query, expected, expected, **same)
    np.testing.assert_array_equal(result.output.numpy(), other.output)
