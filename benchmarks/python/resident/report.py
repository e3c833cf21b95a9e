"""The table of resident's figures."""

import statistics

WAYS = ("in process", "resident", "sent", "vLLM", "Triton")
RATIOS = (
    ("resident", "in process"),
    ("sent", "resident"),
    ("vLLM", "resident"),
    ("Triton", "resident"),
)
HEADS = ["sequences x keys", "MiB", *WAYS[:2], "of it computing", *WAYS[2:]]
HEADS += [f"{over} / {under}" for over, under in RATIOS]


def row(case, found, computing):
    """`found`: seconds of each round, by way; `computing`: of them, what the server says."""
    cells = [f"{case.batch} x {case.length}", f"{case.bytes / 2**20:.0f}"]
    for way in WAYS:
        times = found.get(way)
        cells.append(milliseconds(statistics.median(times)) if times else "-")
        if way == "resident":
            cells.append(milliseconds(computing))
    for over, under in RATIOS:
        pairs = zip(found.get(over, ()), found.get(under, ()))
        ratios = [a / b for a, b in pairs]
        cells.append(f"{statistics.median(ratios):.2f}" if ratios else "-")
    return "| " + " | ".join(cells) + " |"


def milliseconds(seconds):
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.1 else f"{1e3 * seconds:.0f} ms"
