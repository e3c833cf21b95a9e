"""The console script's attend."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any, cast

from attention_client import _files, scoring
from attention_client._arrays import Array
from attention_client._cli_connection import connect
from attention_client._reply import TENSORS as RESULTS
from attention_client._request import TENSORS, Options

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


def add_to(commands: Any) -> None:
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


def _attend(options: argparse.Namespace) -> None:
    arrays = _of_case(_files.read(options.input), options.case)
    settings = dict(_setting(text) for text in options.set)
    request = {name: arrays[name] for name in TENSORS if name in arrays}
    chosen = _scoring(options.scoring, arrays, settings)
    query, key, value = (wanted(arrays, name) for name in ("query", "key", "value"))
    request |= settings | {"scoring": chosen, "causal": options.causal}
    request |= {"weights": options.weights, "lse": options.lse}
    with connect(options) as client:
        result = client.attend(
            query, key, value, timeout=options.timeout, **cast(Options, request)
        )
    named = {n: getattr(result, n) for n in RESULTS}
    found = {name: array for name, array in named.items() if array is not None}
    for name, array in found.items():
        print(f"{name} {tuple(array.shape)} {array.dtype}")
    milliseconds = result.compute_ns / 1e6
    print(f"computed in {milliseconds:.3f} ms: {result.backend}, {result.kernel}")
    if options.out:
        _files.write(options.out, found)


def wanted(arrays: dict[str, Array], name: str) -> Array:
    if name not in arrays:
        shown = ", ".join(sorted(arrays)[:20]) or "none"
        raise KeyError(f"no tensor {name} (the file has {shown})")
    return arrays[name]


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
        **given, **{tensor: wanted(arrays, tensor) for tensor in tensors}
    )
    return made
