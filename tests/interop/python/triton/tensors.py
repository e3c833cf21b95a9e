"""Shorthand for tritonclient's tensors."""

import tritonclient.grpc as triton
from tritonclient.utils import np_to_triton_dtype


def to_inputs(tensors, module=triton, **how):
    inputs = []
    for name, array in tensors.items():
        tensor = module.InferInput(
            name, list(array.shape), np_to_triton_dtype(array.dtype)
        )
        tensor.set_data_from_numpy(array, **how)
        inputs.append(tensor)
    return inputs


def to_outputs(*names, module=triton):
    return [module.InferRequestedOutput(name) for name in names]
