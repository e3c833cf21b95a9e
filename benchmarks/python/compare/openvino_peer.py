"""OpenVINO: its ScaledDotProductAttention, and the plain formula as a graph."""

import functools
from collections.abc import Callable

import ml_dtypes
import numpy as np
import openvino as ov
from openvino import opset13 as op

from compare.case import Case
from compare.measure import CannotDo, Peer
from compare.tensors import aligned_empty, mask_of

NAME = "OpenVINO SDPA"
PLAIN = "OpenVINO, plain softmax(QK^T)V"
TYPES = {"FP32": ov.Type.f32, "FP16": ov.Type.f16, "BF16": ov.Type.bf16}
_threads = 1


def precision_of(case: Case) -> str:
    """The case's own. Without a hint, FP32 models are computed in BF16 where the processor has
    that. With the hint FP16, so are FP16 ones where it has no FP16: 14 times FP16's error
    (root mean square, L1024 D64), which `expected` refuses; FP32 is right there."""
    if case.dtype == "FP16":
        can = ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if "FP16" not in can:
            return TYPES["FP32"].get_type_name()
    return TYPES[case.dtype].get_type_name()


def start(threads: int) -> None:
    global _threads
    _threads = threads


def tensor_of(array: np.ndarray) -> ov.Tensor:
    """A view of the array's memory."""
    if array.dtype == ml_dtypes.bfloat16:
        return ov.Tensor(array.view(np.uint16), list(array.shape), ov.Type.bf16)
    return ov.Tensor(array, shared_memory=True)


def plain_graph(case: Case, query, key, value) -> list:
    scale = op.constant(np.array(case.scale, np.float32))
    if case.dtype != "FP32":
        scale = op.convert(scale, TYPES[case.dtype].get_type_name())
    scores = op.matmul(op.multiply(query, scale), key, False, True)
    weights = op.softmax(scores, -1)
    return [op.matmul(weights, value, False, False), weights]


def attention(name: str, plain: bool, folded: bool, case: Case, tensors: dict) -> Peer:
    if case.scoring != "dot":
        raise CannotDo(f"has no {case.scoring} attention")
    if case.weights and not plain:
        raise CannotDo("does not return weights")
    arrays = [tensors[n] for n in ("query", "key", "value")]
    if folded:
        arrays[0] = arrays[0].reshape(case.batch, case.kv_heads, -1, case.width)
    mask = mask_of(case, tensors, folded)
    causal = case.is_plainly_causal
    if mask is not None and not causal:
        arrays.append(mask)
    parameters = [
        op.parameter(
            list(a.shape), ov.Type.boolean if a.dtype == np.bool_ else TYPES[case.dtype]
        )
        for a in arrays
    ]
    if plain:
        nodes = plain_graph(case, *parameters)
    else:
        nodes = [op.scaled_dot_product_attention(*parameters, causal=causal)]
    model = ov.Model(nodes, parameters, "attention")
    compiled = ov.Core().compile_model(
        model,
        "CPU",
        {
            "INFERENCE_NUM_THREADS": _threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": precision_of(case),
        },
    )
    request = compiled.create_infer_request()
    inputs = [tensor_of(array) for array in arrays]
    for n, tensor in enumerate(inputs):
        request.set_input_tensor(n, tensor)
    outputs = {}
    for n, key in enumerate(["output", "weights"][: len(nodes)]):
        array = aligned_empty(tuple(compiled.output(n).shape), arrays[0].dtype)
        request.set_output_tensor(n, tensor_of(array))
        outputs[key] = array

    def call() -> None:
        request.start_async()
        request.wait()

    call.inputs = inputs, arrays  # kept alive as long as the call is
    return Peer(name, call, lambda: outputs)


def offers(case: Case) -> dict[str, Callable[[Case, dict], Peer]]:
    """Makers of the contenders for a case, by name."""
    if case.lengths or case.key_dtype:
        return {}  # no packed batches, no keys of another type
    offered = {NAME: functools.partial(attention, NAME, False, False)}
    if case.groups > 1:
        folded = f"{NAME}, heads folded into rows"
        offered[folded] = functools.partial(attention, folded, False, True)
    if case.weights:
        offered[PLAIN] = functools.partial(attention, PLAIN, True, False)
    return offered
