"""The model of the Triton server: PyTorch's scaled_dot_product_attention."""

import torch
import triton_python_backend_utils as triton
from torch.nn import functional


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        with torch.inference_mode():
            for request in requests:
                query, key, value = (
                    torch.from_numpy(triton.get_input_tensor_by_name(request, name).as_numpy())
                    for name in ("query", "key", "value")
                )
                output = functional.scaled_dot_product_attention(query, key, value)
                responses.append(triton.InferenceResponse([triton.Tensor("output", output.numpy())]))
        return responses
