"""benchmarks/roofline: see --help."""

import argparse
import json
import pathlib
import statistics
import sys

from compare.figures import duration
from compare.plots import draw, terminal_plot
from compare.progress import say
from compare.report import Table
from compare.sweeps import SWEEPS, Point, Roof


def measure(args: argparse.Namespace) -> tuple[list[Point], Roof]:
    from compare.ours import Limits, Ours  # only now: --help does without NumPy

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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/roofline",
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
