"""The console script: attend, heatmap, bench, sequences, health and info."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import attention_client
from attention_client import _cli_attend, _cli_connection, _cli_sequences, _files, bench
from attention_client._cli_attend import wanted
from attention_client._cli_connection import connect, connect_server
from attention_client.errors import AttentionError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. 0: done; 1: it failed; 2: wrong arguments; 130: Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except KeyboardInterrupt:
        print("\nattention: interrupted", file=sys.stderr)
        return 130
    except (AttentionError, OSError, ValueError, KeyError, ImportError) as error:
        text = error.args[0] if isinstance(error, KeyError) else error
        if isinstance(error, ImportError) and error.name != "attention_engine":
            text = f"{error} (expected: the extras of attention-client[files,plots])"
        if isinstance(error, AttentionError):
            text = f"{error.code.name}: {error}"
        print(f"attention: {text}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attention", description="Calls the attention service."
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"attention {attention_client.__version__}",
        help="of this client; info has the server's",
    )
    _cli_connection.add_options(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _cli_attend.add_to(commands)
    _add_heatmap(commands)
    _add_bench(commands)
    _cli_sequences.add_to(commands)
    health = commands.add_parser("health", help="whether the server serves")
    health.set_defaults(run=_health)
    info = commands.add_parser("info", help="version, backends and limits, as JSON")
    info.set_defaults(run=_info)
    return parser


def _add_heatmap(commands: Any) -> None:
    heatmap = commands.add_parser(
        "heatmap", help="a picture of the weights that attend has written"
    )
    heatmap.add_argument("input", help=".npz or .safetensors")
    heatmap.add_argument("--out", required=True, help="a .png, .svg or .pdf file")
    heatmap.add_argument("--tensor", default="weights", help="(%(default)s)")
    heatmap.add_argument("--entry", type=int, help="this batch entry alone")
    heatmap.add_argument("--head", type=int, help="this head alone")
    heatmap.add_argument("--tokens", help="labels of queries and keys: 'the cat sat'")
    heatmap.set_defaults(run=_heatmap)


def _add_bench(commands: Any) -> None:
    measured = commands.add_parser("bench", help="what calls cost, from Python")
    numbers = {"type": _numbers, "metavar": "N,N,..."}
    measured.add_argument(
        "--lengths", default="16,64,256,1024", **numbers, help="(%(default)s)"
    )
    measured.add_argument("--widths", default="64", **numbers, help="(%(default)s)")
    measured.add_argument("--batch", type=int, default=1, help="(%(default)s)")
    measured.add_argument("--heads", type=int, default=8, help="(%(default)s)")
    measured.add_argument(
        "--scoring", choices=bench.SCORINGS, action="append", help="these alone"
    )
    measured.add_argument(
        "--seconds", type=float, default=0.5, help="for each (%(default)s)"
    )
    measured.add_argument("--out", help="a picture: a .png, .svg or .pdf file")
    measured.add_argument("--json", help="writes the figures to this file")
    measured.set_defaults(run=_bench)


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} (expected numbers such as 16,64)")
    return [int(part) for part in parts]


def _health(options: argparse.Namespace) -> None:
    with connect_server(options) as client:
        status = client.health()
    print(status)
    if status != "SERVING":
        raise ValueError(f"{options.server} says {status}")


def _info(options: argparse.Namespace) -> None:
    with connect(options) as client:
        print(json.dumps(dataclasses.asdict(client.info()), indent=2))


def _heatmap(options: argparse.Namespace) -> None:
    from attention_client.plots import show_heatmaps

    weights = wanted(_files.read(options.input), options.tensor)
    if not 2 <= weights.ndim <= 4:
        raise ValueError(
            f"{options.tensor}: shape {weights.shape} (expected (B, H, Lq, Lk), "
            "(B, Lq, Lk) or (Lq, Lk), as attend writes weights)"
        )
    if weights.ndim == 3:
        weights = weights[:, np.newaxis]
    weights = weights.reshape((1, 1, *weights.shape)[-4:])
    entries, heads = weights.shape[:2]
    for name, index, count in (
        ("entry", options.entry, entries),
        ("head", options.head, heads),
    ):
        if index is not None and not 0 <= index < count:
            raise ValueError(f"--{name}: {index} (expected 0 to {count - 1})")
    if options.entry is not None:
        weights = weights[options.entry : options.entry + 1]
    titles = [f"head {head}" for head in range(heads)]
    if options.head is not None:
        weights = weights[:, options.head : options.head + 1]
        titles = titles[options.head : options.head + 1]
    tokens = options.tokens.split() if options.tokens else None
    show_heatmaps(weights, titles=titles, tokens=tokens).savefig(options.out)
    print(options.out)


def _bench(options: argparse.Namespace) -> None:
    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    with connect(options) as client:
        costs = bench.measure(
            client,
            lengths=options.lengths,
            widths=options.widths,
            scorings=options.scoring or bench.SCORINGS,
            batch=options.batch,
            heads=options.heads,
            seconds=options.seconds,
            progress=progress,
        )
    progress("")
    print(bench.table(costs))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([dataclasses.asdict(cost) for cost in costs], file, indent=1)
    if options.out:
        from attention_client.plots import show_costs

        by = "width" if len(options.widths) > len(options.lengths) else "length"
        show_costs(costs, by=by).savefig(options.out)
