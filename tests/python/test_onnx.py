"""ONNX's own cases of its operator Attention, opsets 23 to 25, sent to the service.

The package onnx makes each case: a model of one node, its inputs and its outputs. All
of them can be said in the service's terms, so none is left out.
"""

import importlib
from contextlib import ExitStack

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from onnx.backend.test.case import node
from onnx.reference import ReferenceEvaluator

# qk_matmul_output_mode: the stage of the scores that is returned; 3 are the weights.
STAGES = {0: "scaled", 1: "capped", 2: "masked"}
WEIGHTS = 3

# Where ONNX computes in the type itself: relative to ONNX's formula in FP64, one
# rounding to the type of the weights and one of the output.
ROUNDINGS = {"bfloat16": 2**-7, "float16": 2**-10}


class Case:
    """One of ONNX's cases, with (B, H, L, D) tensors whatever form the node has."""

    def __init__(self, found):
        (self._node,) = found.model.graph.node
        self.name = found.name
        self.opset = found.model.opset_import[0].version
        self.attributes = {
            each.name: helper.get_attribute_value(each) for each in self._node.attribute
        }
        inputs, outputs = found.data_sets[0]
        self.inputs = self._named(self._node.input, inputs)
        self.outputs = self._named(self._node.output, outputs)
        self.tolerance = {"rtol": found.rtol, "atol": found.atol}
        kind = self.inputs["Q"].dtype.name
        if kind in ROUNDINGS:
            self.outputs = self._in_double(found.model)
            self.tolerance = {"rtol": ROUNDINGS[kind]}
        self.is_flat = self.inputs["Q"].ndim == 3
        self.query = self._with_heads("Q", "q_num_heads")
        self.key = self._with_heads("K", "kv_num_heads")
        self.value = self._with_heads("V", "kv_num_heads")
        self.past = [
            self.inputs[n] for n in ("past_key", "past_value") if n in self.inputs
        ]
        self.lengths = self.inputs.get("nonpad_kv_seqlen")

    @staticmethod
    def _named(names, arrays):
        return dict(zip(filter(None, names), arrays, strict=True))

    def _in_double(self, model):
        wide = {
            name: array.astype(np.float64)
            if array.dtype in (np.float16, ml_dtypes.bfloat16)
            else array
            for name, array in self.inputs.items()
        }
        return self._named(self._node.output, ReferenceEvaluator(model).run(None, wide))

    def _with_heads(self, name, heads):
        array = self.inputs[name]
        if not self.is_flat:
            return array
        batch, length, _ = array.shape
        split = array.reshape(batch, length, self.attributes[heads], -1)
        return np.ascontiguousarray(split.swapaxes(1, 2))

    @property
    def past_length(self):
        return self.past[0].shape[2] if self.past else 0

    @property
    def key_length(self):
        return self.past_length + self.key.shape[2]

    def options(self):
        """Of attend, but for where rows stand: that is another one for each form."""
        given = {name: self.attributes.get(name) for name in ("scale", "softcap")}
        if self.attributes.get("is_causal"):
            given["causal"] = "top_left"
        sides = (self.attributes.get(f"{n}_window_size", -1) for n in ("left", "right"))
        given["window"] = tuple(None if side < 0 else side for side in sides)
        if (mask := self.mask()) is not None:
            given["attend_mask" if mask.dtype == np.bool_ else "bias"] = mask
        if "qk_matmul_output" in self.outputs:
            mode = self.attributes.get("qk_matmul_output_mode", 0)
            given |= {"weights": True} if mode == WEIGHTS else {"scores": STAGES[mode]}
        return given

    def mask(self):
        """attn_mask; keys behind its end take no part."""
        mask = self.inputs.get("attn_mask")
        if mask is None or mask.shape[-1] == self.key_length:
            return mask
        out = False if mask.dtype == np.bool_ else -np.inf
        behind = np.full((*mask.shape[:-1], self.key_length - mask.shape[-1]), out)
        return np.concatenate([mask, behind.astype(mask.dtype)], axis=-1)

    def check(self, output, weights, scores):
        expected = self.outputs["Y"]
        if self.is_flat:
            output = output.swapaxes(1, 2).reshape(expected.shape)
        assert output.dtype == self.query.dtype
        self._compare(output, expected)
        if "qk_matmul_output" in self.outputs:
            matrix = scores if weights is None else weights
            self._compare(matrix, self.outputs["qk_matmul_output"])

    def _compare(self, found, expected):
        wide = (np.asarray(array).astype(np.float64) for array in (found, expected))
        np.testing.assert_allclose(*wide, **self.tolerance)


def onnx_cases():
    np.random.seed(1)  # most cases draw their numbers from NumPy's own generator
    # This makes them. collect_testcases() would make those of every operator.
    importlib.import_module("onnx.backend.test.case.node.attention")
    return [
        Case(found)
        for found in node._NodeTestCases
        # Those named _expanded are the same cases, spelt out in other operators.
        if [each.op_type for each in found.model.graph.node] == ["Attention"]
    ]


CASES = onnx_cases()
CACHED = [case for case in CASES if case.past or case.lengths is not None]


def by_name(cases):
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


def test_every_opset_and_every_mode_is_among_the_cases():
    assert {case.opset for case in CASES} == {23, 24, 25}
    with_matrix = [case for case in CASES if "qk_matmul_output" in case.outputs]
    modes = {case.attributes.get("qk_matmul_output_mode", 0) for case in with_matrix}
    assert modes == {*STAGES, WEIGHTS}
    assert len(CASES) == 93 and len(CACHED) == 34


@by_name(CASES)
def test_answers_are_onnxs(client, case):
    key, value = case.key, case.value
    options = case.options()
    if case.past:
        key, value = (
            np.concatenate(parts, axis=2)
            for parts in zip(case.past, (key, value), strict=True)
        )
        options["query_offset"] = case.past_length
        np.testing.assert_array_equal(key, case.outputs["present_key"])
    if case.lengths is not None:
        options["valid_lens"] = case.lengths
        options["query_offsets"] = case.lengths - case.query.shape[2]
    result = client.attend(case.query, key, value, **options)
    case.check(result.output, result.weights, result.scores)


@by_name(CACHED)
def test_answers_are_onnxs_with_the_cache_on_the_server(client, case):
    """Each batch entry is a sequence: past keys are there, new ones are appended."""
    options = case.options()
    batch, _, rows, _ = case.query.shape
    masks = {n: options.pop(n) for n in ("attend_mask", "bias") if n in options}
    results = []
    with ExitStack() as stack:
        for entry in range(batch):
            sequence = stack.enter_context(
                client.sequence(
                    heads=case.key.shape[1],
                    width=case.key.shape[3],
                    value_width=case.value.shape[3],
                    dtype=case.key.dtype,
                )
            )
            new = case.key[entry], case.value[entry]
            if case.past:
                sequence.append(*(past[entry] for past in case.past))
                length, offset = case.key_length, case.past_length
            else:
                length = int(case.lengths[entry])
                offset = length - rows
                new = tuple(array[:, :length] for array in new)
            whole = (batch, case.query.shape[1], rows, case.key_length)
            for name, mask in masks.items():
                options[name] = np.broadcast_to(mask, whole)[entry, ..., :length]
            results.append(
                sequence.attend(
                    case.query[entry], append=new, query_offset=offset, **options
                )
            )
            assert len(sequence) == length

    def together(name):
        parts = [getattr(result, name) for result in results]
        return None if parts[0] is None else np.stack(parts)

    case.check(*(together(name) for name in ("output", "weights", "scores")))
