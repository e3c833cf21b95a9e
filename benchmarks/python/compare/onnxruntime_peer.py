"""ONNX Runtime: the operator Attention of opset 23."""

import functools
from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from compare.case import Case
from compare.measure import CannotDo, Peer
from compare.tensors import mask_of

NAME = "ONNX Runtime Attention"
TYPES = {
    "FP32": TensorProto.FLOAT,
    "FP16": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
}
WEIGHTS = 3  # qk_matmul_output_mode: what the softmax gives
_threads = 1


def start(threads: int) -> None:
    global _threads
    _threads = threads
    ort.set_default_logger_severity(3)  # errors alone: it warns of what it lacks


def model_of(case: Case, arrays: dict, outputs: dict) -> bytes:
    """One Attention node, with inputs and outputs like these arrays."""

    def info(name: str, array: np.ndarray):
        kind = TensorProto.BOOL if array.dtype == np.bool_ else TYPES[case.dtype]
        return helper.make_tensor_value_info(name, kind, array.shape)

    attributes = {"is_causal": int(case.causal and "mask" not in arrays)}
    names = ["output"]
    if case.weights:
        attributes["qk_matmul_output_mode"] = WEIGHTS
        names += ["", "", "weights"]  # no present_key, no present_value
    graph = helper.make_graph(
        [helper.make_node("Attention", list(arrays), names, **attributes)],
        "attention",
        [info(name, array) for name, array in arrays.items()],
        [info(name, array) for name, array in outputs.items()],
    )
    opset = helper.make_opsetid("", 23)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=11)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def value_of(array: np.ndarray, case: Case) -> ort.OrtValue:
    if array.dtype == ml_dtypes.bfloat16:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
            array.view(np.uint16), TYPES[case.dtype]
        )
    return ort.OrtValue.ortvalue_from_numpy(array)


def attention(name: str, folded: bool, case: Case, tensors: dict) -> Peer:
    if case.scoring != "dot":
        raise CannotDo(f"has no {case.scoring} attention")
    arrays = {n: tensors[n] for n in ("query", "key", "value")}
    if folded:
        rows = (case.batch, case.kv_heads, -1, case.width)
        arrays["query"] = arrays["query"].reshape(rows)
    mask = mask_of(case, tensors, folded)
    causal = case.is_plainly_causal
    if mask is not None and not causal:
        # The operator wants every row, and may broadcast the first two extents.
        rows = (*mask.shape[:2], arrays["query"].shape[2], case.keys)
        arrays["mask"] = np.broadcast_to(mask, rows).copy()
    outputs = {"output": np.empty_like(arrays["query"])}
    if case.weights:
        rows = (case.batch, case.query_heads, case.query_length, case.keys)
        outputs["weights"] = np.zeros(rows, arrays["query"].dtype)

    options = ort.SessionOptions()
    options.intra_op_num_threads = _threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(
        model_of(case, arrays, outputs), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    inputs = {n: value_of(array, case) for n, array in arrays.items()}
    results = {n: value_of(array, case) for n, array in outputs.items()}
    for n, value in inputs.items():
        binding.bind_ortvalue_input(n, value)
    for n, value in results.items():
        binding.bind_ortvalue_output(n, value)

    def read() -> dict[str, np.ndarray]:
        # BF16 comes back as the 16-bit integers that hold it.
        found = {n: value.numpy() for n, value in results.items()}
        if case.dtype == "BF16":
            found = {n: a.view(ml_dtypes.bfloat16) for n, a in found.items()}
        return found

    def call() -> None:
        # A method of the binding below, without the Python around it.
        session.run_with_iobinding(binding)

    call.inputs = inputs  # kept alive as long as the call is
    return Peer(name, call, read)


def offers(case: Case) -> dict[str, Callable[[Case, dict], Peer]]:
    """Makers of the contenders for a case, by name."""
    if case.lengths or case.key_dtype:
        return {}  # no packed batches, no keys of another type
    offered = {NAME: functools.partial(attention, NAME, False)}
    if case.groups > 1:
        folded = f"{NAME}, heads folded into rows"
        offered[folded] = functools.partial(attention, folded, True)
    return offered
