"""Measures attention-server beside Triton; see --help."""

import argparse
import json
import os
import platform
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from compare.progress import say
from compare.report import MET, Table
from serve.processes import Server
from triton_peer.triton import LoadGenerator, TritonServer


@dataclass(frozen=True)
class Case:
    title: str
    shape: tuple[int, int, int, int]  # B, H, L, D of query, key and value
    in_flight: int = 1
    shared_memory: bool = False
    # Or "zero", or "random": random bytes as FP32, with NaN, infinities and subnormal numbers.
    numbers: str = "normal"
    wanted: float | None = None  # times the peer's rate


CASES = [
    Case("B2 L4 D8, 8 in flight", (2, 1, 4, 8), in_flight=8, wanted=3.5),
    Case("B8 H16 L128 D64", (8, 16, 128, 64), wanted=1.8),
    Case("B8 H16 L128 D64, shared memory", (8, 16, 128, 64), shared_memory=True),
    Case("B1 H16 L1024 D64", (1, 16, 1024, 64), wanted=1.5),
    Case("B1 H16 L1024 D64, shared memory", (1, 16, 1024, 64), shared_memory=True),
    Case("B1 H16 L1024 D64, zeros", (1, 16, 1024, 64), numbers="zero"),
    Case("B1 H16 L1024 D64, random bytes", (1, 16, 1024, 64), numbers="random"),
]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/triton",
        description="Measures attention-server beside a Triton server whose Python "
        "backend runs PyTorch's scaled_dot_product_attention, both driven by Triton's "
        "perf_analyzer over gRPC on this machine, one after the other in every round. "
        "Requests carry normally distributed numbers unless the case says otherwise. A "
        "ratio is the median of the rounds' own. 'in the server' is the server's own time "
        "for a call, from the request as it has arrived to the reply as it is handed to "
        "gRPC: what remains of a call is gRPC, the kernel and the load generator.",
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--binaries", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of a window; default: %(default)s"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here")
    return parser.parse_args()


def measure(arguments: argparse.Namespace) -> list[dict]:
    results = [
        {"title": case.title, "ours": [], "triton": [], "server_ms": []} for case in CASES
    ]
    generator = LoadGenerator(arguments.folder)
    with tempfile.TemporaryDirectory() as folder:
        with Server(arguments.binaries, Path(folder), ["--allow-shared-memory"]) as server:
            say(server.line)
            with TritonServer(arguments.folder, "sdpa") as triton:
                for number in range(arguments.rounds):
                    for case, result in zip(CASES, results):
                        say(f"round {number + 1} of {arguments.rounds}: {case.title}")
                        for name, address, model in (
                            ("ours", server.tcp, "scaled_dot_product_attention"),
                            ("triton", triton.address, "sdpa"),
                        ):
                            load = generator.run(address, model, case, arguments.seconds)
                            result[name].append(load.calls_per_second)
                            if name == "ours":
                                result["server_ms"].append(load.server_ms)
    return results


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def table(results: list[dict]) -> Table:
    rows = []
    for case, result in zip(CASES, results):
        ratio = statistics.median(a / b for a, b in zip(result["ours"], result["triton"]))
        met = None if case.wanted is None else ratio >= case.wanted
        rows.append(
            [
                case.title,
                *[_rate(statistics.median(result[name])) for name in ("ours", "triton")],
                f"{statistics.median(result['server_ms']):.3g} of "
                f"{1000 * case.in_flight / statistics.median(result['ours']):.3g} ms",
                f"{ratio:.2f}x",
                "-" if case.wanted is None else f">= {case.wanted}x",
                MET[met],
            ]
        )
    title = f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors"
    heads = [
        "case",
        "ours, calls/s",
        "Triton, calls/s",
        "in the server",
        "ratio",
        "wanted",
        "",
    ]
    return Table(title, heads, rows)


def main() -> None:
    arguments = parse()
    results = measure(arguments)
    shown = table(results)
    print(shown.text())
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    if arguments.markdown:
        arguments.markdown.write_text(shown.markdown())


if __name__ == "__main__":
    main()
