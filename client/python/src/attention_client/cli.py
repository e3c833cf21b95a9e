"""The console script: attend, heatmap, bench, sequences, health and info."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

import attention_client
from attention_client import _files, bench, scoring
from attention_client._arrays import Array
from attention_client._channel import Tls
from attention_client._reply import TENSORS as RESULTS
from attention_client._request import TENSORS, Options
from attention_client.client import Client
from attention_client.errors import AttentionError

_SCORINGS = {
    "scaled_dot_product": scoring.ScaledDotProduct,
    "additive": scoring.Additive,
    "gaussian": scoring.Gaussian,
    "bilinear": scoring.Bilinear,
    "parameter_set": scoring.ParameterSet,
}
# What --set takes, as JSON.
_SETTABLE = (
    "softcap",
    "query_offset",
    "key_offset",
    "window",
    "training",
    "dropout_p",
    "seed",
    "weights_after_dropout",
    "empty_rows",
    "top_k",
    "key_weights",
    "scores",
    "id",
    "scale",
    "sigma",
    "name",
)


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
        if isinstance(error, ImportError):
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
        "--server",
        default=os.environ.get("ATTENTION_SERVER", "127.0.0.1:8001"),
        help="host:port or unix:/path [ATTENTION_SERVER] (%(default)s)",
    )
    parser.add_argument(
        "--timeout",
        "--deadline",
        type=float,
        default=60.0,
        help="seconds (%(default)s)",
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"attention {attention_client.__version__}",
        help="of this client; info has the server's",
    )
    _add_security(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_attend(commands)
    _add_heatmap(commands)
    _add_bench(commands)
    _add_sequences(commands)
    health = commands.add_parser("health", help="whether the server serves")
    health.set_defaults(run=_health)
    info = commands.add_parser("info", help="version, backends and limits, as JSON")
    info.set_defaults(run=_info)
    return parser


# As attention-client has them, with the same variables.
def _add_security(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tls",
        action="store_true",
        help="encrypt, and check the server's certificate; implied by the next three",
    )
    for name, meaning in (
        ("tls-ca", "who signs the server's certificate, in PEM (the system's)"),
        ("tls-certificate", "this caller's certificate, in PEM"),
        ("tls-key", "its private key, in PEM"),
        ("token-file", "the token that tells the server who calls"),
    ):
        variable = f"ATTENTION_CLIENT_{name.upper().replace('-', '_')}"
        parser.add_argument(
            f"--{name}",
            metavar="FILE",
            default=os.environ.get(variable),
            help=f"{meaning} [{variable}]",
        )


def _connect(options: argparse.Namespace) -> Client:
    files = (options.tls_ca, options.tls_certificate, options.tls_key)
    token = None
    if options.token_file is not None:
        with open(options.token_file, encoding="utf-8") as file:
            token = file.read().strip()
    return Client(
        options.server,
        timeout=options.timeout,
        tls=Tls(*files) if options.tls or any(files) else False,
        token=token,
    )


def _add_attend(commands: Any) -> None:
    attend = commands.add_parser(
        "attend",
        help="attention of the tensors of a file",
        description="The file has query, key and value, and what else the request is "
        f"to have: {', '.join(TENSORS)}; w_q, w_k and w_v, or m, for scoring.",
    )
    # --input, --output, --deadline: what is written for attention-client works.
    given = attend.add_mutually_exclusive_group(required=True)
    left_out: Any = argparse.SUPPRESS  # or the one that is absent would win
    given.add_argument(
        "input", nargs="?", default=left_out, help=".npz or .safetensors"
    )
    given.add_argument("--input", default=left_out, metavar="FILE", help="the same")
    attend.add_argument("--case", help="the tensors are named CASE/query and so on")
    attend.add_argument("--out", "--output", help="writes all results to this file")
    attend.add_argument("--weights", action="store_true", help="also the weights")
    attend.add_argument("--lse", action="store_true", help="also the log-sum-exp")
    attend.add_argument("--causal", choices=("none", "top_left", "bottom_right"))
    attend.add_argument(
        "--scoring", choices=_SCORINGS, help="as the tensors say, unless given"
    )
    attend.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"an option, its value in JSON: {', '.join(_SETTABLE)}",
    )
    attend.set_defaults(run=_attend)


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


def _add_sequences(commands: Any) -> None:
    sequences = commands.add_parser(
        "sequences", help="keys and values that stay on the server"
    )
    verbs = sequences.add_subparsers(required=True, metavar="VERB")
    listed = verbs.add_parser("list", help="name, label, keys, datatype and bytes")
    listed.add_argument("--label", help="of this label alone")
    listed.add_argument("--label-prefix", help="of labels that begin so")
    listed.set_defaults(run=_list_sequences)
    described = verbs.add_parser("describe", help="what one is, as JSON")
    described.add_argument("name")
    described.set_defaults(run=_describe_sequence)
    deleted = verbs.add_parser("delete", help="ends them")
    deleted.add_argument("names", nargs="+", metavar="name")
    deleted.set_defaults(run=_delete_sequences)
    exported = verbs.add_parser("export", help="into a file of the server's folder")
    exported.add_argument("name")
    exported.add_argument("file", help="a name without a path")
    exported.set_defaults(run=_export_sequence)
    imported = verbs.add_parser("import", help="from such a file; prints the name")
    imported.add_argument("file", help="a name without a path")
    imported.add_argument("--name", help="in place of one that the server makes")
    imported.add_argument("--label", default="", help="what list finds it by")
    imported.set_defaults(run=_import_sequence)


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} (expected numbers such as 16,64)")
    return [int(part) for part in parts]


def _health(options: argparse.Namespace) -> None:
    with _connect(options) as client:
        status = client.health()
    print(status)
    if status != "SERVING":
        raise ValueError(f"{options.server} says {status}")


def _info(options: argparse.Namespace) -> None:
    with _connect(options) as client:
        print(json.dumps(dataclasses.asdict(client.info()), indent=2))


def _list_sequences(options: argparse.Namespace) -> None:
    wanted = {"label": options.label, "label_prefix": options.label_prefix}
    with _connect(options) as client:
        for one in client.sequences(**wanted):
            print(
                f"{one.name}\t{one.label}\t{max(one.lengths)} keys\t"
                f"{one.form.datatype}\t{one.bytes} bytes"
            )


def _describe_sequence(options: argparse.Namespace) -> None:
    with _connect(options) as client:
        described = client.open_sequence(options.name).describe()
    print(json.dumps(dataclasses.asdict(described), indent=2))


def _delete_sequences(options: argparse.Namespace) -> None:
    with _connect(options) as client:
        print(f"{client.delete_sequences(options.names)} deleted")


def _export_sequence(options: argparse.Namespace) -> None:
    with _connect(options) as client:
        size = client.open_sequence(options.name).export(options.file)
    print(f"{size} bytes")


def _import_sequence(options: argparse.Namespace) -> None:
    with _connect(options) as client:
        made = client.import_sequence(
            options.file, name=options.name, label=options.label
        )
    print(made.name)


def _attend(options: argparse.Namespace) -> None:
    arrays = _of_case(_files.read(options.input), options.case)
    settings = dict(_setting(text) for text in options.set)
    request = {name: arrays[name] for name in TENSORS if name in arrays}
    chosen = _scoring(options.scoring, arrays, settings)
    query, key, value = (_wanted(arrays, name) for name in ("query", "key", "value"))
    request |= settings | {"scoring": chosen, "causal": options.causal}
    request |= {"weights": options.weights, "lse": options.lse}
    with _connect(options) as client:
        result = client.attend(query, key, value, **cast(Options, request))
    named = {n: getattr(result, n) for n in RESULTS}
    found = {name: array for name, array in named.items() if array is not None}
    for name, array in found.items():
        print(f"{name} {tuple(array.shape)} {array.dtype}")
    milliseconds = result.compute_ns / 1e6
    print(f"computed in {milliseconds:.3f} ms: {result.backend}, {result.kernel}")
    if options.out:
        _files.write(options.out, found)


def _heatmap(options: argparse.Namespace) -> None:
    from attention_client.plots import show_heatmaps

    weights = _wanted(_files.read(options.input), options.tensor)
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

    with _connect(options) as client:
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


def _of_case(arrays: dict[str, Array], case: str | None) -> dict[str, Array]:
    if case is None:
        return arrays
    prefix = case.rstrip("/") + "/"
    found = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    if not found:
        cases = sorted({name.rpartition("/")[0] for name in arrays} - {""})
        shown = ", ".join(cases[:20]) or "none: leave --case out"
        raise KeyError(f"--case {case}: not in the file (its cases: {shown})")
    return found


def _wanted(arrays: dict[str, Array], name: str) -> Array:
    if name not in arrays:
        shown = ", ".join(sorted(arrays)[:20]) or "none"
        raise KeyError(f"no tensor {name} (the file has {shown})")
    return arrays[name]


def _setting(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or name not in _SETTABLE:
        expected = ", ".join(_SETTABLE)
        raise ValueError(f"--set {text} (expected NAME=VALUE, NAME one of {expected})")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value  # a word without its quotation marks


def _scoring(
    name: str | None, arrays: dict[str, Array], settings: dict[str, Any]
) -> scoring.Scoring | None:
    """Takes what is the scoring function's own out of settings."""
    made = _made_scoring(name, arrays, settings)
    for left, whose in (("sigma", "gaussian"), ("name", "parameter_set")):
        if left in settings:
            raise ValueError(f"--set {left}=...: expected with --scoring {whose} alone")
    return made


def _made_scoring(
    name: str | None, arrays: dict[str, Array], settings: dict[str, Any]
) -> scoring.Scoring | None:
    if name is None and "w_v" in arrays:
        name = "additive"
    elif name is None and "m" in arrays:
        name = "bilinear"
    if name is None:
        return None
    kind: Any = _SCORINGS[name]
    fields = dataclasses.fields(kind)
    given = {f.name: settings.pop(f.name) for f in fields if f.name in settings}
    if name == "parameter_set" and "name" not in given:
        raise ValueError("--scoring parameter_set: expected --set name=... beside it")
    tensors = {f.name for f in fields} & {"w_q", "w_k", "w_v", "m"}
    made: scoring.Scoring = kind(
        **given, **{tensor: _wanted(arrays, tensor) for tensor in tensors}
    )
    return made
