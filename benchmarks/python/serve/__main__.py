"""Measures the server under load; see --help."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from compare.progress import say
from serve.cases import CASES, Case
from serve.processes import Floors, Server, load
from serve.report import Result, table


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/serve",
        description="Measures attention-server under load, beside what no server "
        "can be faster than on this machine: the same bytes over a plain socket "
        "(ping) and a gRPC call that does nothing (echo). Each round measures a "
        "case and its floor one after the other; a ratio is the median of the "
        "rounds' own. Latencies are those of the caller; what the server says that "
        "it computed is taken off in the column `without computing`.",
    )
    parser.add_argument("--binaries", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--cases", help="names, with commas between: " + ", ".join(case.name for case in CASES)
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="to measure each; default: %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="2 rounds of half a second")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here")
    parser.add_argument(
        "--server-flags", default="", metavar="FLAGS", help="more of attention-server's flags"
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 2, 0.5
    return arguments


def wanted_cases(names: str | None) -> list[Case]:
    if names is None:
        return CASES
    known = {case.name: case for case in CASES}
    missing = [name for name in names.split(",") if name not in known]
    if missing:
        sys.exit(f"serve: no case {', '.join(missing)} (known: {', '.join(known)})")
    return [known[name] for name in names.split(",")]


def call_flags(case: Case, address: str) -> list[str]:
    flags = ["--server", address, "--shape", ",".join(map(str, case.shape))]
    return [*flags, "--in-flight", str(case.in_flight)]


def ours(case: Case, server: Server, arguments: argparse.Namespace) -> dict:
    flags = call_flags(case, server.unix if case.unix else server.tcp)
    if case.stream:
        flags.append("--stream")
    if case.api != "native":
        flags += ["--api", case.api]
    if case.shared_memory:
        flags.append("--shared-memory")
    if case.rate:
        flags += ["--rate", str(case.rate)]
    return load(arguments.binaries, ["attend", *flags], arguments.seconds)


def floor(
    case: Case, server: Server, floors: Floors, arguments: argparse.Namespace
) -> dict:
    if case.floor == "compute":
        # As the server itself says, of the same problem over our own API.
        run = load(
            arguments.binaries, ["attend", *call_flags(case, server.tcp)], arguments.seconds
        )
        return {**run, "latency_us": run["compute_us"]}
    kind = "unix" if case.unix else "tcp"
    address = floors.addresses[f"{case.floor}_{kind}"]
    if case.floor == "echo":
        flags = ["echo", *call_flags(case, address)]
    else:
        sent, received = 3 * case.tensor_bytes(), case.tensor_bytes()
        flags = ["ping", "--server", address, "--send", str(sent), "--receive", str(received)]
    return load(arguments.binaries, flags, arguments.seconds)


def measure(cases: list[Case], folder: Path, arguments: argparse.Namespace) -> list[Result]:
    results = [Result(case) for case in cases]
    flags = ["--allow-shared-memory", *arguments.server_flags.split()]
    with Server(arguments.binaries, folder, flags) as server, Floors(
        arguments.binaries, folder
    ) as floors:
        say(server.line)
        for number in range(arguments.rounds):
            for result in results:
                case = result.case
                if case.most_memory is not None:
                    continue
                say(f"round {number + 1} of {arguments.rounds}: {case.title}")
                result.rounds.append(ours(case, server, arguments))
                if case.floor is not None:
                    result.floors.append(floor(case, server, floors, arguments))
    for result in results:
        if result.case.most_memory is None:
            continue
        say(f"memory: {result.case.title}, a server of its own")
        with Server(arguments.binaries, folder, flags) as server:
            result.rounds.append(ours(result.case, server, arguments))
            result.peak_bytes = server.peak_bytes()
    return results


def main() -> None:
    arguments = parse()
    cases = wanted_cases(arguments.cases)
    with tempfile.TemporaryDirectory(prefix="serve-") as folder:
        results = measure(cases, Path(folder), arguments)
    title = f"{arguments.rounds} rounds of {arguments.seconds} s; medians of the rounds"
    shown = table(results, title)
    print(shown.text())
    if arguments.markdown:
        arguments.markdown.write_text(shown.markdown())
    if arguments.json:
        everything = {"title": title, "cases": [result.json() for result in results]}
        arguments.json.write_text(json.dumps(everything, indent=1) + "\n")


main()
