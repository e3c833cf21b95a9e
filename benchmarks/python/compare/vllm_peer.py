"""vLLM's attention over a paged cache, as its processes for CPUs call it, without vLLM
around it. The environment variable VLLM_LIBRARY says where its library is."""

import functools
import os
from collections.abc import Callable

import numpy as np
import torch

from compare.case import Case
from compare.measure import Peer
from compare.tensors import entries_of
from compare.torch_calls import to_numpy, to_torch, zeros

NAME = "vLLM, pages"
TYPES = {"FP32": torch.float32, "BF16": torch.bfloat16}
CACHES = {"": "auto", "FP8": "fp8_e4m3"}
PAGE = 64  # keys, where the case leaves it open


def start(threads: int) -> None:
    torch.set_num_threads(threads)
    torch.ops.load_library(os.environ["VLLM_LIBRARY"])
    if has_amx():
        torch.cpu._init_amx()  # Linux gives the tiles to processes that ask for them


def has_amx() -> bool:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return " amx_bf16 " in file.read()


class Pages:
    """Keys and values of every sequence in pages that lie in an order by chance."""

    def __init__(self, case: Case, isa: str, tensors: dict, allocate: Callable):
        self.kind = CACHES[case.key_dtype]
        self.scales = [
            float(tensors[name].max()) if name in tensors else 1.0
            for name in ("key_scale", "value_scale")
        ]
        # Without the mask that may come with it: vLLM is told "causal".
        entries = [entry[:3] for entry in entries_of(case, tensors)]
        self.lengths = [key.shape[1] for _, key, _ in entries]
        page = case.page or PAGE
        counts = [-(-length // page) for length in self.lengths]
        kept = TYPES[case.dtype] if self.kind == "auto" else torch.uint8
        shape = (sum(counts) + 1, case.kv_heads, page, case.width)
        self.key, self.value = (allocate(shape, dtype=kept) for _ in range(2))
        self.table = torch.zeros(len(entries), max(counts), dtype=torch.int32)
        generator = torch.Generator().manual_seed(1)
        pages = torch.randperm(sum(counts), generator=generator) + 1
        for row, count, some in zip(self.table, counts, pages.split(counts)):
            row[:count] = some
        for row, length, (_, key, value) in zip(self.table, self.lengths, entries):
            at = torch.arange(length)
            slots = row[at // page].long() * page + at % page
            torch.ops._C.cpu_attn_reshape_and_cache(
                self.tokens(key, case),
                self.tokens(value, case),
                self.key,
                self.value,
                slots,
                isa,
                *self.scales,
                self.kind,
            )

    @staticmethod
    def tokens(heads_first: np.ndarray, case: Case) -> torch.Tensor:
        rows = np.ascontiguousarray(heads_first.swapaxes(0, 1))
        return to_torch(rows).to(TYPES[case.dtype])


def attention(name: str, isa: str, allocate: Callable, case: Case, tensors: dict) -> Peer:
    pages = Pages(case, isa, tensors, allocate)
    query = tensors["query"]
    if not case.lengths:
        tokens_first = query.swapaxes(1, 2)
        query = tokens_first.reshape(-1, case.query_heads, case.width)
    query = to_torch(np.ascontiguousarray(query))
    output = torch.empty_like(query)
    rows = tensors.get("query_starts", np.arange(case.batch + 1) * case.query_length)
    starts = torch.from_numpy(rows.astype(np.int32))
    lengths = torch.tensor(pages.lengths, dtype=torch.int32)
    # vLLM makes this once a step, for all layers of a model.
    plan = torch.ops._C.get_scheduler_metadata(
        len(lengths),
        case.query_heads,
        case.kv_heads,
        case.width,
        lengths,
        query.dtype,
        starts,
        True,  # causal: the last row sees every key
        -1,  # no window
        isa,
        True,  # keys of one sequence may be split over threads
        None,
        pages.kind,
    )
    call = functools.partial(
        torch.ops._C.cpu_attention_with_kv_cache,
        query,
        pages.key,
        pages.value,
        output,
        starts,
        lengths,
        case.scale,
        True,
        None,  # no ALiBi
        -1,
        pages.table,
        0.0,  # no softcap
        plan,
        None,
        None,  # no sinks
        *pages.scales,
        pages.kind,
    )

    def read() -> dict[str, np.ndarray]:
        found = to_numpy(output)
        if case.lengths:
            return {"output": found}
        shape = (case.batch, case.query_length, case.query_heads, case.width)
        return {"output": found.reshape(shape).swapaxes(1, 2)}

    return Peer(name, call, read, torch.inference_mode)


def offers(case: Case) -> dict[str, Callable[[Case, dict], Peer]]:
    """Makers of the contenders for a case, by name: for sequences as servers have them."""
    causal = case.causal or case.query_length == 1  # it is told so of every case
    if (
        not causal
        or not (case.page or case.lengths)
        or case.dtype not in TYPES
        or case.key_dtype not in CACHES
    ):
        return {}
    sets = {"vectors": ("vec", zeros)}
    if case.dtype == "BF16" and has_amx():
        sets["AMX"] = ("amx", zeros)
        # As vLLM itself allocates its cache: without huge pages, where Linux gives
        # them only to who asks.
        sets["AMX, torch.zeros"] = ("amx", torch.zeros)
    return {
        f"{NAME}, {words}": functools.partial(attention, f"{NAME}, {words}", isa, allocate)
        for words, (isa, allocate) in sets.items()
    }
