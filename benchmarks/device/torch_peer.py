"""PyTorch on the cases that attention-gpu-benchmark has measured, on the same
device, and both side by side as a Markdown table.

Usage: torch_peer.py MEASURED.jsonl >TABLE.md    without PyTorch: ours alone
"""
import functools
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    torch = None

ROUNDS = 7
SECONDS_PER_ROUND = 0.1


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
    """query, key and value on the device; keys repeated for grouped queries."""
    dtype = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}[case["type"]]

    def normal(heads, length):
        return torch.randn(case["batch"], heads, length, case["width"],
                           device="cuda", dtype=dtype)

    return (normal(case["heads"], case["queries"]), normal(case["kv_heads"], case["keys"]),
            normal(case["kv_heads"], case["keys"]))


def repeated(case, tensor):
    return tensor.repeat_interleave(case["heads"] // case["kv_heads"], dim=1)


def scores_of(case, query, key):
    """The plain scores of a case, as a tutorial writes them."""
    if case["scoring"] == "gaussian":
        return -0.5 * torch.cdist(query, key).square()
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


def plain(case, query, key, value):
    scores = scores_of(case, query, key)
    if case["causal"]:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device="cuda").tril()
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ value


def measure(case):
    """Seconds by name: "plain", and each backend of PyTorch's attention that serves the case."""
    torch.backends.cuda.matmul.allow_tf32 = False
    query, key, value = tensors_of(case)
    found = {}
    keys, values = repeated(case, key), repeated(case, value)
    try:
        found["plain"] = seconds_of(lambda: plain(case, query, keys, values))
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
    if case["scoring"] != "dot" or case["weights"]:
        return found
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION,
                    SDPBackend.EFFICIENT_ATTENTION):
        name = backend.name.split("_")[0].lower()
        ways = {name: (keys, values, {})}
        if keys.shape != key.shape:
            ways[name + ", grouped"] = (key, value, {"enable_gqa": True})
        for way, (k, v, options) in ways.items():
            try:
                with sdpa_kernel([backend]):
                    found[way] = seconds_of(functools.partial(
                        F.scaled_dot_product_attention, query, k, v,
                        is_causal=case["causal"], **options))
            except (RuntimeError, TypeError):  # it does not serve this case
                continue
    return found


def row_of(case, peers):
    ours = case.get("seconds")
    cells = [case["name"], case["kernel"]]
    if ours is None:
        return cells + ["failed: " + case["error"], "", "", "", ""]
    cells += [f"{ours * 1e3:.3f}", f"{case['flops'] / ours * 1e-12:.1f}",
              f"{case['call_seconds'] * 1e3:.2f}"]
    fused = {name: value for name, value in peers.items() if name != "plain"}
    best = min(fused, key=fused.get) if fused else None
    cells.append(f"{fused[best] * 1e3:.3f} ({best}), {fused[best] / ours:.2f}x" if best else "")
    cells.append(f"{peers['plain'] * 1e3:.3f}, {peers['plain'] / ours:.2f}x"
                 if "plain" in peers else "")
    return cells


def main():
    with open(sys.argv[1], encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    with_torch = torch is not None and torch.cuda.is_available()
    print(f"{cases[0]['device']}, "
          + (f"PyTorch {torch.__version__}" if with_torch else "PyTorch is not here") + "\n")
    heads = ["case", "kernel", "ours, ms", "TFLOP/s", "call with copies, ms",
             "PyTorch's fastest fused, ms", "PyTorch plain, ms"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for case in cases:
        peers = {}
        if with_torch:
            with torch.inference_mode():
                peers = measure(case)
        print("| " + " | ".join(row_of(case, peers)) + " |", flush=True)


if __name__ == "__main__":
    main()
