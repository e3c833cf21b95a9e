"""PyTorch: its fused functions, the plain formula, and torch.compile."""

import functools
import logging
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from compare import torch_flex, torch_packed
from compare.case import Case
from compare.measure import CannotDo, Peer
from compare.tensors import mask_of
from compare.torch_calls import returning, to_numpy, to_torch

SDPA = "PyTorch SDPA"
BACKENDS = {"": None, ", flash": SDPBackend.FLASH_ATTENTION, ", math": SDPBackend.MATH}


def start(threads: int) -> None:
    torch.set_num_threads(threads)
    # torch.compile looks for CUDA on its way, and says so.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)


def sdpa(name: str, backend, folded: bool, case: Case, tensors: dict) -> Peer:
    if case.weights:
        raise CannotDo("does not return weights")
    query, key, value = (to_torch(tensors[n]) for n in ("query", "key", "value"))
    if folded:
        # Each head of a group becomes a query of its own, so that keys are read once.
        query = query.reshape(case.batch, case.kv_heads, -1, case.width)
    options = {}
    mask = mask_of(case, tensors, folded)
    if case.is_plainly_causal:
        options["is_causal"] = True
    elif mask is not None:
        options["attn_mask"] = torch.from_numpy(mask)
    if case.groups > 1 and not folded:
        options["enable_gqa"] = True
    compute = functools.partial(
        F.scaled_dot_product_attention, query, key, value, **options
    )
    return returning(name, compute, backend)


def plain_dot(name: str, case: Case, tensors: dict) -> Peer:
    """softmax(Q K^T) V as three calls, every buffer reused."""
    query, key, value = (to_torch(tensors[n]) for n in ("query", "key", "value"))
    lanes = case.batch * (case.kv_heads or case.query_heads)
    query, key, value = (t.reshape(lanes, -1, case.width) for t in (query, key, value))
    scores = torch.empty(lanes, query.shape[1], case.keys, dtype=query.dtype)
    weights = torch.empty_like(scores)
    output = torch.empty_like(query)
    mask = mask_of(case, tensors)
    if case.alibi:
        raise CannotDo("is measured without ALiBi")
    if mask is not None:
        rows = (case.batch, case.query_heads, case.query_length, case.keys)
        out = torch.from_numpy(np.broadcast_to(~mask, rows).copy())
        out = out.reshape(scores.shape)

    def call() -> None:
        torch.baddbmm(scores, query, key.mT, beta=0, alpha=case.scale, out=scores)
        if mask is not None:
            scores.masked_fill_(out, -torch.inf)
        torch.softmax(scores, -1, out=weights)
        torch.bmm(weights, value, out=output)

    def read() -> dict[str, np.ndarray]:
        return {"output": to_numpy(output), "weights": to_numpy(weights)}

    return Peer(name, call, read, torch.inference_mode)


def additive(query, key, value, w_q, w_k, w_v):
    """Bahdanau's attention as tutorials write it."""
    features = torch.tanh((query @ w_q).unsqueeze(-2) + (key @ w_k).unsqueeze(-3))
    return torch.softmax(features @ w_v, -1) @ value


def gaussian(query, key, value, sigma: float):
    """Nadaraya-Watson kernel regression as tutorials write it."""
    scores = -(torch.cdist(query, key) ** 2) / (2 * sigma**2)
    return torch.softmax(scores, -1) @ value


def written_out(name: str, compiled: bool, case: Case, tensors: dict) -> Peer:
    inputs = [to_torch(tensors[n]) for n in ("query", "key", "value")]
    if case.scoring == "additive":
        function = additive
        inputs += [to_torch(tensors[n]) for n in ("w_q", "w_k", "w_v")]
    else:
        function = functools.partial(gaussian, sigma=case.sigma)
    if compiled:
        function = torch.compile(function, dynamic=False)
    return returning(name, functools.partial(function, *inputs))


def offers(case: Case) -> dict[str, Callable[[Case, dict], Peer]]:
    """Makers of the contenders for a case, by name."""
    if case.lengths:
        return torch_packed.offers(case)
    offered: dict[str, Callable[[Case, dict], Peer]] = {}
    if case.key_dtype:
        return offered  # no keys of another type

    def offer(name: str, make: Callable[..., Peer], *args) -> None:
        offered[name] = functools.partial(make, name, *args)

    if case.scoring == "dot":
        for suffix, backend in BACKENDS.items():
            offer(SDPA + suffix, sdpa, backend, False)
        if case.groups > 1:
            offer(f"{SDPA}, heads folded into rows", sdpa, None, True)
        offer("PyTorch, plain softmax(QK^T)V", plain_dot)
        offered |= torch_flex.offers(case)
    else:
        form = "plain" if case.scoring == "additive" else "cdist"
        offer(f"PyTorch, {form}", written_out, False)
        offer(f"PyTorch, {form}, torch.compile", written_out, True)
    return offered
