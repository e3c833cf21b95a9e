"""Tables and the picture of what was measured."""

from pathlib import Path

from overload.measure import DEADLINE, Measured


def tables(measured: Measured) -> str:
    lines = [
        measured.server,
        "",
        f"| load | goodput | p50 | p99 | memory | refused or late (deadline {DEADLINE:.0f} s) |",
        "|---|---|---|---|---|---|",
    ]
    for load in measured.loads:
        codes = ", ".join(f"{count} {code}" for code, count in load.codes.items()) or "none"
        lines.append(
            f"| {load.factor:g}x | {load.goodput:.2f} | {load.p50_ms:.0f} ms | {load.p99_ms:.0f} ms "
            f"| {load.memory_mib:.0f} MiB | {codes} |"
        )
    lines += ["", "| small requests | p50 | p99 | answered | failed |", "|---|---|---|---|---|"]
    for row in measured.beside:
        lines.append(
            f"| {row.name} | {row.p50_ms:.2f} ms | {row.p99_ms:.2f} ms | {row.answered} "
            f"| {row.errors} |"
        )
    return "\n".join(lines)


def plot(measured: Measured, file: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (rates, times, memory) = pyplot.subplots(1, 3, figsize=(11, 3.2))
    offered = [load.factor for load in measured.loads]
    rates.plot(offered, [load.goodput for load in measured.loads], "o-", label="answered in time")
    rates.plot(offered, [min(factor, 1) for factor in offered], ":", label="as much as can be")
    rates.set_ylabel("of the best rate")
    rates.set_ylim(0, 1.1)
    rates.legend(loc="lower right")
    times.plot(offered, [load.p50_ms for load in measured.loads], "o-", label="median")
    times.plot(offered, [load.p99_ms for load in measured.loads], "s-", label="99 %")
    times.set_ylabel("latency of what is answered, ms")
    times.set_ylim(bottom=0)
    times.legend()
    memory.plot(offered, [load.memory_mib for load in measured.loads], "o-")
    memory.set_ylabel("memory of the server, MiB")
    memory.set_ylim(bottom=0)
    for axes in (rates, times, memory):
        axes.set_xlabel("offered load, of the best rate")
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
