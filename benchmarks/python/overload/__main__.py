"""Offers the server more than it can compute; see --help."""

import argparse
import json
import tempfile
from pathlib import Path

from overload.measure import Measured, goodput, small_beside_large
from overload.report import plot, tables
from serve.processes import Server


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/overload",
        description="Offers attention-server up to ten times what it can compute, every call "
        "with a deadline of one second, and says what share of the best rate is still "
        "answered in time (goodput), how long that took, and what memory the server held. "
        "Then measures small requests alone and beside large ones of another caller. The "
        "load generator runs on the same machine and takes its share of it.",
    )
    parser.add_argument("--binaries", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--seconds", type=float, default=10, help="for each load; default: %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="2 seconds each")
    parser.add_argument(
        "--loads",
        type=lambda text: [float(load) for load in text.split(",")],
        default=[0.5, 0.9, 1.5, 2, 5, 10],
        metavar="A,B",
        help="in multiples of the best rate; default: 0.5,0.9,1.5,2,5,10",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything here")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw it (matplotlib)")
    parser.add_argument(
        "--server-flags", default="", metavar="FLAGS", help="more of attention-server's flags"
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seconds = 2
    return arguments


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder:
        flags = arguments.server_flags.split()
        with Server(arguments.binaries, Path(folder), flags) as server:
            measured = Measured(
                server=server.line,
                loads=goodput(arguments.binaries, server, arguments.loads, arguments.seconds),
                beside=small_beside_large(arguments.binaries, server, arguments.seconds),
            )
    print(tables(measured))
    if arguments.json:
        arguments.json.write_text(json.dumps(measured.as_json(), indent=1) + "\n")
    if arguments.plot:
        plot(measured, arguments.plot)


main()
