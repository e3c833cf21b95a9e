"""The roofline as a plot: in the terminal, and as a file."""

import math
import pathlib

from compare.sweeps import SWEEPS, Point, Roof

MARKS = "LKQWH"  # of the sweeps, in the terminal


def terminal_plot(
    points: list[Point], roof: Roof, width: int = 72, height: int = 20
) -> str:
    """Rate over intensity, both logarithmic: / and - are the limits, letters are us."""
    xs = [math.log2(p.intensity) for p in points] + [math.log2(roof.ridge)]
    ys = [math.log2(p.rate) for p in points] + [math.log2(roof.flops)]
    x0, x1 = min(xs) - 0.5, max(xs) + 0.5
    y0, y1 = min(ys) - 0.5, max(ys) + 0.5
    grid = [[" "] * width for _ in range(height)]

    def put(x: float, y: float, mark: str) -> None:
        column = round((x - x0) / (x1 - x0) * (width - 1))
        row = round((y1 - y) / (y1 - y0) * (height - 1))
        if 0 <= row < height:
            grid[row][column] = mark

    for column in range(width):
        x = x0 + (x1 - x0) * column / (width - 1)
        put(x, math.log2(roof.at(2**x)), "/" if 2**x < roof.ridge else "-")
    for point in points:
        mark = MARKS[list(SWEEPS).index(point.sweep)]
        put(math.log2(point.intensity), math.log2(point.rate), mark)
    lines = [
        f"GFLOP/s, {2**y1 * 1e-9:.3g} at the top, {2**y0 * 1e-9:.3g} at the bottom"
    ]
    lines += ["|" + "".join(row).rstrip() for row in grid]
    lines += ["+" + "-" * width]
    lines += [f" {2**x0:.2g} FLOP/byte" + f"{2**x1:.0f} FLOP/byte".rjust(width - 14)]
    marks = ", ".join(f"{mark} {name}" for mark, name in zip(MARKS, SWEEPS))
    lines += [f" {marks}; / reading memory, - multiply-adds"]
    return "\n".join(lines)


def draw(path: pathlib.Path, points: list[Point], roof: Roof, title: str) -> None:
    """The same plot, and time over bytes, in the format that the name ends with."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5.2))
    low = min(min(p.intensity for p in points), roof.ridge) / 2
    high = max(max(p.intensity for p in points), roof.ridge) * 2
    ends = [low, roof.ridge, high]
    left.plot(ends, [roof.at(x) * 1e-9 for x in ends], color="black", label="machine")
    for name in SWEEPS:
        own = [p for p in points if p.sweep == name]
        if not own:
            continue
        left.plot(
            [p.intensity for p in own], [p.rate * 1e-9 for p in own], "o-", label=name
        )
        right.plot(
            [p.bytes for p in own], [p.seconds * 1e3 for p in own], "o-", label=name
        )
    sizes = [min(p.bytes for p in points), max(p.bytes for p in points)]
    right.plot(
        sizes, [n / roof.read * 1e3 for n in sizes], color="black", label="reading once"
    )
    left.set(
        xlabel="FLOP per byte of inputs and outputs", ylabel="GFLOP/s", title=title
    )
    right.set(
        xlabel="bytes of inputs and outputs", ylabel="ms", title="Time as sizes grow"
    )
    for axes in (left, right):
        axes.set(xscale="log", yscale="log")
        axes.grid(True, which="major", alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path)
