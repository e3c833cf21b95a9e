"""PyTorch on the cases that attention-gpu-benchmark has measured, on the same device.

Usage: torch_peer.py MEASURED.tsv PEERS.tsv SECONDS
Appends to PEERS.tsv, before each case, its name and "begun", and after it its name and the
milliseconds of each way to compute it. Started again after a crash, it goes on with the case
that follows. Ends after SECONDS at the latest but for the case under way.
"""
import functools
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROUNDS = 5
SECONDS_PER_ROUND = 0.06


def seconds_of(function):
    """The median over rounds of one call's time, the device's queue filled."""
    function()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    function()
    torch.cuda.synchronize()
    repeats = max(1, min(1000, int(SECONDS_PER_ROUND / (time.perf_counter() - begin))))
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(repeats):
            function()
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - begin) / repeats)
    return statistics.median(rounds)


def tensors_of(case):
    """query, key and value on the device."""
    dtype = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}[case["type"]]

    def normal(heads, length):
        return case["magnitude"] * torch.randn(case["batch"], heads, length, case["width"],
                                               device="cuda", dtype=dtype)

    return (normal(case["heads"], case["queries"]), normal(case["kv_heads"], case["keys"]),
            normal(case["kv_heads"], case["keys"]))


def repeated(case, tensor):
    return tensor.repeat_interleave(case["heads"] // case["kv_heads"], dim=1)


def distances_of(case):
    """How far each key lies before each query's position, bottom-right."""
    rows = torch.arange(case["queries"], device="cuda")[:, None] + case["keys"] - case["queries"]
    return rows - torch.arange(case["keys"], device="cuda")


def mask_of(case, dtype):
    """What is given as attn_mask: None, booleans, or numbers that are added."""
    distances = distances_of(case)
    takes_part = torch.ones_like(distances, dtype=torch.bool)
    if case["causal"]:
        takes_part &= distances >= 0
    if case["window"] >= 0:
        takes_part &= distances <= case["window"]
    if case["mask"]:
        index = torch.arange(case["queries"] * case["keys"], device="cuda")
        takes_part &= (index % 7 != 3).view_as(distances)
    if not case["bias"] and not case["alibi"]:
        return None if takes_part.all() else takes_part
    added = torch.zeros_like(distances, dtype=dtype)
    if case["bias"]:
        added = torch.randn_like(added)
    if case["alibi"]:
        slopes = 2.0 ** (-8 * torch.arange(1, case["heads"] + 1, device="cuda") / case["heads"])
        added = (added - slopes[None, :, None, None] * distances.abs()).to(dtype)
    return added.masked_fill(~takes_part, float("-inf"))


def scores_of(case, query, key):
    """The plain scores of a case, as a tutorial writes them."""
    if case["scoring"] == "gaussian":
        return -0.5 * torch.cdist(query, key).square()
    if case["scoring"] == "bilinear":
        matrix = torch.randn(case["width"], case["width"], device="cuda")
        return query @ matrix @ key.transpose(-2, -1)
    if case["scoring"] == "additive":
        hidden = case["hidden"]
        w_q, w_k = (torch.randn(case["width"], hidden, device="cuda") for _ in range(2))
        w_v = torch.randn(hidden, device="cuda")
        rows = []  # head by head: all of (Lq, Lk, h) at once fits no device
        for head in range(query.shape[1]):
            sums = (query[:, head] @ w_q)[:, :, None] + (key[:, head] @ w_k)[:, None]
            rows.append(torch.tanh(sums) @ w_v)
        return torch.stack(rows, dim=1)
    return query @ key.transpose(-2, -1) * case["width"] ** -0.5


def plain(case, mask, query, key, value):
    scores = scores_of(case, query, key)
    if case["softcap"] > 0:
        scores = case["softcap"] * torch.tanh(scores / case["softcap"])
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    weights = F.dropout(torch.softmax(scores, dim=-1), case["dropout"])
    return weights @ value


def fused(case, query, key, value):
    """Seconds by name of the backends of PyTorch's attention that serve the case."""
    if case["scoring"] != "dot" or case["weights"] or case["softcap"] > 0 or case["sinks"]:
        return
    just_causal = case["causal"] and case["window"] < 0 and case["queries"] == case["keys"]
    mask = None if just_causal else mask_of(case, query.dtype)
    keys, values = repeated(case, key), repeated(case, value)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION,
                    SDPBackend.EFFICIENT_ATTENTION):
        name = backend.name.split("_")[0].lower()
        ways = {name: (keys, values, {})}
        if keys.shape != key.shape:
            ways[name + " grouped"] = (key, value, {"enable_gqa": True})
        for way, (k, v, options) in ways.items():
            try:
                with sdpa_kernel([backend]):
                    yield way, seconds_of(functools.partial(
                        F.scaled_dot_product_attention, query, k, v, attn_mask=mask,
                        is_causal=just_causal, dropout_p=case["dropout"], **options))
            except (RuntimeError, TypeError):  # it does not serve this case
                continue


def measure(case):
    """Each way and its seconds, "plain" last."""
    torch.backends.cuda.matmul.allow_tf32 = False
    query, key, value = tensors_of(case)
    found = dict(fused(case, query, key, value))
    if case["sinks"]:
        return found
    try:
        found["plain"] = seconds_of(functools.partial(
            plain, case, mask_of(case, query.dtype), query, repeated(case, key),
            repeated(case, value)))
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
    return found


def cases_of(path):
    """Names and cases of the rows that hold one."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            columns = line.rstrip("\n").split("\t")
            if len(columns) == 8:
                yield columns[0], json.loads(columns[7])


def main():
    measured, peers, seconds = sys.argv[1:]
    ends = time.monotonic() + float(seconds) - 15
    with open(peers, encoding="utf-8") as lines:
        begun = {line.split("\t")[0] for line in lines}
    with open(peers, "a", encoding="utf-8", buffering=1) as found, torch.inference_mode():
        if not begun:
            print("PyTorch", torch.__version__, sep="\t", file=found)
        for name, case in cases_of(measured):
            if name in begun:
                continue
            if time.monotonic() > ends:
                break
            print(name, "begun", sep="\t", file=found)
            ways = sorted(measure(case).items(), key=lambda way: way[1])
            text = ", ".join(f"{way} {value * 1e3:.3f}" for way, value in ways)
            print(name, text or "none serves it", sep="\t", file=found)


if __name__ == "__main__":
    main()
