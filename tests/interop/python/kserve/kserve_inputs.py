"""What the kserve SDK's two clients are given."""

from kserve import InferInput

DATATYPES = {"float32": "FP32", "float16": "FP16", "int32": "INT32", "bool": "BOOL"}


def to_inputs(tensors, binary=True):
    inputs = []
    for name, array in tensors.items():
        tensor = InferInput(name, list(array.shape), DATATYPES[array.dtype.name])
        tensor.set_data_from_numpy(array, binary_data=binary)
        inputs.append(tensor)
    return inputs
