"""PyTorch on packed batches: sequences of unequal lengths."""

import functools
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from compare.case import Case
from compare.measure import CannotDo, Peer
from compare.tensors import entries_of
from compare.torch_calls import returning, to_torch, zeros


def sdpa(query, key, value, **options) -> torch.Tensor:
    """Of heads that are grouped. A single row of each head is folded into rows of its
    group, which reads the keys once."""
    batch, heads, rows, width = query.shape
    groups = heads // key.shape[1]
    if rows > 1 or groups == 1:
        options["enable_gqa"] = groups > 1
        return F.scaled_dot_product_attention(query, key, value, **options)
    folded = query.reshape(batch, key.shape[1], groups, width)
    output = F.scaled_dot_product_attention(folded, key, value, **options)
    return output.reshape(batch, heads, rows, -1)


def torch_entries(case: Case, tensors: dict) -> list[tuple[torch.Tensor, ...]]:
    """Query, key and value of each entry, (1, H, L, D)."""
    return [
        tuple(to_torch(np.ascontiguousarray(part[None])) for part in entry[:3])
        for entry in entries_of(case, tensors)
    ]


def causal_of(case: Case) -> dict:
    """As many queries as keys: PyTorch's own causal rule is the case's."""
    return {"is_causal": True} if case.causal else {}


def one_by_one(name: str, case: Case, tensors: dict) -> Peer:
    entries = torch_entries(case, tensors)
    options = causal_of(case)

    def compute() -> torch.Tensor:
        outputs = [sdpa(*entry, **options)[0].transpose(0, 1) for entry in entries]
        return torch.cat(outputs)

    return returning(name, compute)


def padded(name: str, case: Case, tensors: dict) -> Peer:
    """Its inputs are padded before it is measured, its output stays so."""
    starts = [tensors[f"{n}_starts"] for n in ("query", "key", "key")]
    query, key, value = (
        padded_tensor(tensors[n], at)
        for n, at in zip(("query", "key", "value"), starts)
    )
    queries = np.diff(starts[0])
    options = causal_of(case)
    peer = returning(name, functools.partial(sdpa, query, key, value, **options))
    read = peer.read

    def without_padding() -> dict[str, np.ndarray]:
        rows = [
            one[:, :length].swapaxes(0, 1)
            for one, length in zip(read()["output"], queries)
        ]
        return {"output": np.concatenate(rows)}

    peer.read = without_padding
    return peer


def padded_tensor(packed: np.ndarray, starts: np.ndarray) -> torch.Tensor:
    """(tokens, H, D) as (B, H, the longest, D), zeros behind each entry."""
    tokens = to_torch(packed)
    shape = (
        len(starts) - 1,
        tokens.shape[1],
        int(np.diff(starts).max()),
        tokens.shape[2],
    )
    whole = zeros(shape, tokens.dtype)
    for entry, first, end in zip(whole, starts, starts[1:]):
        entry[:, : end - first] = tokens[first:end].transpose(0, 1)
    return whole


def nested(name: str, case: Case, tensors: dict) -> Peer:
    """Tensors of the layout torch.jagged, every group's keys repeated for it: the layout
    has no grouped heads. On processors PyTorch has one way to compute them, "math", and
    none that is causal. It is asked for by name: to choose, PyTorch asks the CUDA
    driver, which fails where there is none."""
    if case.causal:
        raise CannotDo("has no causal nested tensors without CUDA")

    def jagged(name: str, starts: str, repeats: int) -> torch.Tensor:
        values = to_torch(tensors[name]).repeat_interleave(repeats, dim=1)
        offsets = torch.from_numpy(tensors[starts]).long()
        return torch.nested.nested_tensor_from_jagged(values, offsets).transpose(1, 2)

    query = jagged("query", "query_starts", 1)
    key, value = (jagged(n, "key_starts", case.groups) for n in ("key", "value"))

    def compute() -> torch.Tensor:
        output = F.scaled_dot_product_attention(query, key, value)
        return output.transpose(1, 2).values()

    # In inference mode there are no nested tensors.
    return returning(name, compute, SDPBackend.MATH, torch.no_grad)


def offers(case: Case) -> dict[str, Callable[[Case, dict], Peer]]:
    """Makers of the contenders for a packed batch, by name."""
    if case.key_dtype:
        return {}  # no keys of another type
    makers = {"PyTorch SDPA, one call each": one_by_one}
    if (
        case.query_length != 1
    ):  # a whole cache is not padded, nor repeated for each head
        makers["PyTorch SDPA, padded"] = padded
        makers["PyTorch SDPA, nested tensors"] = nested
    return {name: functools.partial(make, name) for name, make in makers.items()}
