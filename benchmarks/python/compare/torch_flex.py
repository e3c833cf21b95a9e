"""PyTorch's flex_attention: masks as functions, whose empty blocks are not computed, and
what is added to scores as another, compiled for the case."""

import functools
from collections.abc import Callable

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from compare.case import Case
from compare.measure import CannotDo, Peer
from compare.torch_calls import returning, to_torch

NAME = "PyTorch flex_attention, torch.compile"


def takes_part(case: Case, tensors: dict) -> Callable[..., torch.Tensor] | None:
    """Whether a key takes part in a row; None where all do."""
    shift = case.keys - case.query_length
    rules = []
    if case.causal:
        rules.append(lambda b, h, row, key: key <= row + shift)
    if case.window_left >= 0:
        rules.append(lambda b, h, row, key: key >= row + shift - case.window_left)
    if "valid_lens" in tensors:
        lengths = to_torch(tensors["valid_lens"])
        rules.append(lambda b, h, row, key: key < lengths[b])
    if not rules:
        return None
    return lambda b, h, row, key: functools.reduce(
        torch.logical_and, [rule(b, h, row, key) for rule in rules]
    )


def with_alibi(case: Case, tensors: dict) -> Callable[..., torch.Tensor] | None:
    if not case.alibi:
        return None
    shift = case.keys - case.query_length
    slopes = to_torch(tensors["alibi_slopes"])
    return lambda score, b, h, row, key: (
        score - slopes[h] * torch.abs(row + shift - key)
    )


def flex(case: Case, tensors: dict) -> Peer:
    if case.weights:
        raise CannotDo("does not return weights")
    query, key, value = (to_torch(tensors[n]) for n in ("query", "key", "value"))
    mask = takes_part(case, tensors)
    options = {"enable_gqa": case.groups > 1, "score_mod": with_alibi(case, tensors)}
    if mask is not None:
        batch = case.batch if "valid_lens" in tensors else None
        options["block_mask"] = create_block_mask(
            mask, batch, None, case.query_length, case.keys, device="cpu"
        )
    compiled = torch.compile(flex_attention, dynamic=False)
    return returning(NAME, functools.partial(compiled, query, key, value, **options))


def offers(case: Case) -> dict[str, Callable[[Case, dict], Peer]]:
    """For what it is made for: without masks and additions it is a slower SDPA."""
    masked = case.causal or case.window_left >= 0 or case.mean_length or case.alibi
    does = masked and case.scoring == "dot" and not case.sinks
    return {NAME: flex} if does else {}
