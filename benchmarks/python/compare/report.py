"""Tables for the terminal and for Markdown, and everything as JSON."""

import dataclasses
import pathlib
import re
import statistics
from dataclasses import dataclass

from compare.figures import (
    Result,
    duration,
    judge,
    rate,
    ratio,
    rounds_not_alone,
    spread,
)


@dataclass
class Table:
    title: str
    heads: list[str]
    rows: list[list[str]]
    note: str = ""  # what a reader has to know of its numbers

    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.heads, *self.rows)]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip()
            for row in [self.heads, ["-" * w for w in widths], *self.rows]
        ]
        return "\n".join([*self.before(), *lines, ""])

    def before(self, mark: str = "") -> list[str]:
        note = [self.note, ""] if self.note else []
        return [f"{mark}{self.title}{mark}", "", *note]

    def markdown(self) -> str:
        rows = [self.heads, ["---"] * len(self.heads), *self.rows]
        escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        lines = ["| " + " | ".join(row) + " |" for row in escaped]
        return "\n".join([*self.before("**"), *lines, ""])


MET = {True: "met", False: "missed", None: "-"}


def noisy(samples: list[float]) -> str:
    text = duration(statistics.median(samples))
    return text if len(samples) < 2 else f"{text} ±{spread(samples) / 2:.0%}"


RATIOS = (
    "Times are medians of the rounds, ratios and shares the medians of the rounds' own. "
    "Where rounds differ much, a ratio is not that of the two times beside it, and may "
    "say the contrary: then trust neither."
)


def targets_table(results: list[Result]) -> Table:
    """A line for each target; the first of a case has its figures."""
    rows = []
    for result, not_alone in zip(results, rounds_not_alone(results)):
        title = result.case.title
        if not_alone:
            title += f" ({not_alone} of {len(result.limits)} rounds not alone)"
        name, best = result.best_peer(), "-"
        if name is not None:
            times = ratio(result.peers[name], result.ours)
            middle = duration(statistics.median(result.peers[name]))
            best = f"{middle}, {times:.2f}x: {name}"
        share = result.share_of_limit()
        figures = [
            title,
            noisy(result.ours),
            rate(result),
            "-" if share is None else f"{share:.0%}",
            best,
        ]
        for target in result.targets():
            verdict = judge(result, target)
            rows.append([*figures, verdict.measured, verdict.wanted, MET[verdict.met]])
            figures = [""] * len(figures)
    return Table(
        "Ours beside the best peer",
        [
            "case",
            "ours",
            "rate",
            "of limit",
            "best peer, its time over ours",
            "measured",
            "wanted",
            "",
        ],
        rows,
        RATIOS,
    )


# What a README has room for.
SUMMARY = (
    "l1024-d64",
    "l1024-d64-bf16",
    "causal-l1024-d64",
    "weights-l1024-d64",
    "b8-l128",
    "decode-grouped",
    "additive",
)


def summary_table(results: list[Result]) -> Table:
    rows = []
    for result in results:
        name = result.best_peer()
        if result.case.key not in SUMMARY or name is None:
            continue
        peer = duration(statistics.median(result.peers[name]))
        times = f"{ratio(result.peers[name], result.ours):.2f}x"
        ours = duration(statistics.median(result.ours))
        rows.append([result.case.title, ours, f"{peer}, {name}", times])
    heads = ["case", "this server's core", "best of the others", "ratio"]
    return Table("In one process, on one thread", heads, rows)


def peers_table(results: list[Result]) -> Table:
    """Everyone who was measured, and who could not be."""
    rows = []
    for result in results:
        title = result.case.title
        others = {f"ours, {name}": s for name, s in result.variants.items()}
        for name, samples in {"ours": result.ours, **others, **result.peers}.items():
            rows.append(
                [title, name, noisy(samples), duration(min(samples)),
                 f"{ratio(samples, result.ours):.2f}", ""]
            )  # fmt: skip
            title = ""
        for name, reason in result.cannot.items():
            rows.append([title, name, "", "", "", reason])
            title = ""
    return Table(
        "Everyone",
        ["case", "who", "median", "fastest", "times ours", "why not"],
        rows,
    )


def memory_table(rows: list[dict]) -> Table:
    def mebibytes(count: float) -> str:
        return f"{count / 2**20:.2f} MiB"

    return Table(
        "Peak memory beyond inputs and outputs",
        ["case", "inputs and outputs", "beyond them, per thread", "wanted", ""],
        [
            [
                row["name"],
                mebibytes(row["inputs_and_outputs"]),
                mebibytes(row["peak_memory_beyond"] / row["threads"]),
                f"<= {mebibytes(row['limit'] / row['threads'])}",
                MET[row["peak_memory_beyond"] <= row["limit"]],
            ]
            for row in rows
        ],
    )


def limits_line(results: list[Result]) -> str:
    measured: dict[int, list[dict]] = {}
    for result in results:
        measured.setdefault(result.case.threads, []).extend(result.limits)
    return " ".join(limits_of(threads, of) for threads, of in measured.items())


def limits_of(threads: int, measured: list[dict]) -> str:
    flops = [limits["flops"] * 1e-9 for limits in measured]
    read = [limits["read"] * 1e-9 for limits in measured]
    of_threads = f" with {threads} threads" if threads else ""
    return (
        f"Limits{of_threads}, measured after each round: "
        f"{statistics.median(flops):.0f} GFLOP/s of FP32 multiply-adds "
        f"({min(flops):.0f} to {max(flops):.0f}), "
        f"{statistics.median(read):.1f} GB/s read from memory "
        f"({min(read):.1f} to {max(read):.1f})."
    )


def alone_line(results: list[Result]) -> str:
    rounds = sum(len(result.limits) for result in results)
    return (
        f"After {sum(rounds_not_alone(results))} of {rounds} rounds one of them was "
        "more than a tenth below its median: the machine had other work."
    )


def machine_name(machine: dict) -> str:
    return f"{machine['processor']}, {machine['instruction_set']}"


def write_machine_page(folder: pathlib.Path, machine: dict, text: str) -> pathlib.Path:
    """Writes a machine's tables to a page named after it, in place of those of its last
    run. Returns the page."""
    name = machine_name(machine)
    plain = re.sub(r"\((r|tm)\)", "", name.lower())
    page = folder / (re.sub(r"[^a-z0-9]+", "-", plain).strip("-") + ".md")
    folder.mkdir(parents=True, exist_ok=True)
    head = f"# {name}\n\nWritten by `benchmarks/compare --markdown {folder}`.\n\n"
    page.write_text(f"{head}{text.rstrip()}\n", encoding="utf-8")
    return page


BEGIN = "<!-- written by benchmarks/compare -->"
END = "<!-- end of what benchmarks/compare writes -->"


def write_summary(file: pathlib.Path, text: str) -> None:
    """Replaces what lies between two lines of the file, or the whole of a file that has
    no such lines."""
    whole = file.read_text(encoding="utf-8") if file.exists() else ""
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    block = f"{BEGIN}\n\n{text}\n{END}"
    file.write_text(
        f"{before}{block}{after}" if begin and end else text, encoding="utf-8"
    )


def machine_lines(machine: dict) -> str:
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['processors']} processors of "
        f"{machine['cores']} cores, kernels "
        f"{machine['instruction_set']}, {machine['threads']} thread(s), "
        f"{machine['rounds']} rounds, {machine['date']}. {versions}."
    )


NOTE = (
    "Medians of the rounds, ± half their interquartile range. GFLOP/s count 4 D for each "
    "pair that takes part, GB/s inputs and outputs once; what stays in a cache may exceed "
    "the rate of reading memory."
)


def as_json(machine: dict, results: list[Result], memory: list[dict]) -> dict:
    cases = []
    for result in results:
        entry = dataclasses.asdict(result)
        entry["targets"] = [
            dataclasses.asdict(judge(result, target)) for target in result.targets()
        ]
        entry["best_peer"] = result.best_peer()
        cases.append(entry)
    return {"machine": machine, "cases": cases, "peak_memory": memory}
