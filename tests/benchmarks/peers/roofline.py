"""tests/benchmarks/roofline: see --help."""

import argparse
import json
import math
import pathlib
import statistics
import sys
from dataclasses import dataclass

from peers.cases import Case
from peers.figures import duration
from peers.progress import say
from peers.report import Table

BASE = Case("", "", batch=1, query_heads=8, query_length=1024, width=64)
SWEEPS: dict[str, tuple[Case, ...]] = {
    "length": tuple(BASE.but(query_length=2**n) for n in range(4, 13)),
    "keys of one query": tuple(
        BASE.but(query_length=1, key_length=2**n) for n in range(8, 18)
    ),
    "queries": tuple(
        BASE.but(query_length=2**n, key_length=16384) for n in range(0, 8)
    ),
    "width": tuple(BASE.but(width=w) for w in (8, 16, 32, 64, 128, 256)),
    "heads": tuple(BASE.but(query_heads=h) for h in (1, 2, 4, 8, 16)),
}
MARKS = "LKQWH"  # of the sweeps, in the terminal


@dataclass
class Point:
    """A shape that was measured. Bytes are inputs and outputs, each counted once."""

    sweep: str
    shape: str
    seconds: float
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        return self.flops / self.seconds


@dataclass
class Roof:
    """The machine's two limits: flops and bytes per second."""

    flops: float
    read: float

    def at(self, intensity: float) -> float:
        return min(self.flops, self.read * intensity)

    @property
    def ridge(self) -> float:
        """The intensity from which arithmetic is the limit, no longer memory."""
        return self.flops / self.read


def measure(args: argparse.Namespace) -> tuple[list[Point], Roof]:
    from peers.ours import Limits, Ours  # only now: --help does without NumPy

    names = args.sweeps.split(",") if args.sweeps else list(SWEEPS)
    if unknown := [name for name in names if name not in SWEEPS]:
        sys.exit(f"roofline: unknown sweep {', '.join(unknown)}: {', '.join(SWEEPS)}")
    limits = Limits(args.binary, args.threads)
    points, seen = [], []
    for name in names:
        say(f"{name} ", end="")
        for case in SWEEPS[name]:
            ours = Ours(name, args.binary, case, args.threads)
            times = [ours.measure(args.seconds) for _ in range(args.rounds)]
            about = ours.about
            ours.close()
            shape = (
                f"H{case.query_heads} Lq{case.query_length} Lk{case.keys} D{case.width}"
            )
            points.append(
                Point(
                    name,
                    shape,
                    statistics.median(times),
                    about["flops"],
                    about["bytes"],
                )
            )
            seen.append(limits.measure(args.seconds))
            print(".", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    limits.close()
    return points, Roof(
        *(statistics.median(one[which] for one in seen) for which in ("flops", "read"))
    )


def table(points: list[Point], roof: Roof) -> Table:
    rows, last = [], ""
    for point in points:
        limit = "memory" if point.intensity < roof.ridge else "arithmetic"
        rows.append(
            [
                point.sweep if point.sweep != last else "",
                point.shape,
                duration(point.seconds),
                f"{point.bytes / 2**20:.3g} MiB",
                f"{point.intensity:.3g}",
                f"{point.rate * 1e-9:.3g}",
                f"{point.bytes / point.seconds * 1e-9:.3g}",
                limit,
                f"{point.rate / roof.at(point.intensity):.0%}",
            ]
        )
        last = point.sweep
    heads = [
        "sweep",
        "shape",
        "time",
        "bytes",
        "FLOP/byte",
        "GFLOP/s",
        "GB/s",
        "limit",
        "of it",
    ]
    return Table("Attention against the machine's two limits", heads, rows)


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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/benchmarks/roofline",
        description="How time, bytes and arithmetic intensity of our attention grow "
        "with its sizes, against the machine's peak rate of multiply-adds and of reading "
        "memory.",
        epilog="Points above the slope are problems that stay in a cache. "
        "Takes about two minutes.",
    )
    parser.add_argument(
        "--sweeps", metavar="A,B", help=f"only these of: {', '.join(SWEEPS)}"
    )
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument(
        "--rounds", type=int, default=5, help="of each shape (default: 5)"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.1, help="of a round (default: 0.1)"
    )
    parser.add_argument(
        "--plot", type=pathlib.Path, metavar="FILE", help="draw it: .svg, .png, .pdf"
    )
    parser.add_argument(
        "--json", type=pathlib.Path, metavar="FILE", help="write the figures"
    )
    parser.add_argument(
        "--binary", type=pathlib.Path, required=True, help=argparse.SUPPRESS
    )
    return parser.parse_args()


def main() -> None:
    args = arguments()
    points, roof = measure(args)
    print(table(points, roof).text())
    print(terminal_plot(points, roof))
    line = (
        f"{roof.flops * 1e-9:.0f} GFLOP/s, {roof.read * 1e-9:.1f} GB/s: below "
        f"{roof.ridge:.1f} FLOP/byte reading memory is the limit, above it arithmetic"
    )
    print(f"\nMachine, {args.threads} thread(s): {line}.")
    if args.plot:
        title = f"{roof.flops * 1e-9:.0f} GFLOP/s, {roof.read * 1e-9:.1f} GB/s"
        draw(args.plot, points, roof, f"Roofline: {title}, {args.threads} thread(s)")
        print(f"Plot: {args.plot}")
    if args.json:
        content = {"roof": vars(roof), "points": [vars(point) for point in points]}
        args.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
