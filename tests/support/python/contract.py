"""Attention in FP64 with its options, and its tolerances (docs/numerics.md).

Arrays have four dimensions: (B, H, L, D). What is left out here: dropout, offsets.
"""

from dataclasses import dataclass, field

import numpy as np

FACTOR = 4  # c of the contract
EPS = 2.0**-24
ROUNDING = {"FP32": 2.0**-24, "FP16": 2.0**-11, "BF16": 2.0**-8}
# Numbers below it may count as 0.
SMALLEST = {"FP32": 2.0**-126, "FP16": 2.0**-24, "BF16": 2.0**-126}


@dataclass
class Attention:
    query: np.ndarray  # (B, Hq, Lq, D)
    key: np.ndarray  # (B, Hkv, Lk, D)
    value: np.ndarray  # (B, Hkv, Lk, Dv)
    scoring: str = "scaled_dot_product"  # or additive, gaussian, bilinear
    parameters: dict = field(default_factory=dict)  # w_q, w_k, w_v or m
    masks: dict = field(default_factory=dict)  # valid_lens, attend_mask, bias, sinks
    options: dict = field(default_factory=dict)  # softcap, causal, window_*, empty_rows


@dataclass
class Answer:
    output: np.ndarray
    weights: np.ndarray
    lse: np.ndarray
    # By how much each may be off.
    output_tolerance: np.ndarray
    weights_tolerance: np.ndarray
    lse_tolerance: np.ndarray


def scores_of(problem, query, key):
    """Scores, and the magnitudes of what is added up for each of them."""
    width = query.shape[-1]
    keys = np.swapaxes(key, -1, -2)
    growth = max(1, np.sqrt(width) / 4)
    if problem.scoring == "scaled_dot_product":
        scale = 1 / np.sqrt(width)
        magnitude = scale * np.abs(query) @ np.abs(keys)
        return scale * query @ keys, growth * magnitude
    if problem.scoring == "gaussian":
        difference = query[..., :, None, :] - key[..., None, :, :]
        half = np.sum(difference**2, axis=-1) / 2
        return -half, growth * half
    if problem.scoring == "bilinear":
        m = problem.parameters["m"].astype(np.float64)
        magnitude = np.abs(query) @ np.abs(m) @ np.abs(keys)
        return query @ m @ keys, max(1, np.sqrt(2 * width) / 4) * magnitude
    w_q, w_k, w_v = (
        problem.parameters[name].astype(np.float64) for name in ("w_q", "w_k", "w_v")
    )
    unit = np.tanh((query @ w_q)[..., :, None, :] + (key @ w_k)[..., None, :, :])
    added = (np.abs(query) @ np.abs(w_q))[..., :, None, :]
    added = added + (np.abs(key) @ np.abs(w_k))[..., None, :, :]
    magnitude = (1 + (1 - unit**2) * added) @ np.abs(w_v)
    growth = max(1, np.sqrt(2 * width + len(w_v)) / 4)
    return unit @ w_v, growth * magnitude


def keys_that_take_part(problem, shape):
    batch, _, queries, keys = shape
    takes_part = np.ones(shape, bool)
    position = np.arange(keys)
    row = np.arange(queries)[:, None]
    if problem.options.get("causal") == "bottom_right":
        row = row + keys - queries
    if problem.options.get("causal", "none") != "none":
        takes_part &= position <= row
    left = problem.options.get("window_left", -1)
    right = problem.options.get("window_right", -1)
    if left >= 0:
        takes_part &= position >= row - left
    if right >= 0:
        takes_part &= position <= row + right
    if "valid_lens" in problem.masks:
        lengths = problem.masks["valid_lens"].reshape(batch, 1, -1, 1)
        takes_part &= position < lengths
    if "attend_mask" in problem.masks:
        takes_part &= problem.masks["attend_mask"].astype(bool)
    return takes_part


def softmax(problem, scores, takes_part):
    """Weights, lse, and the magnitude that a sink adds to each row."""
    rows = scores.shape[:-1]
    sinks = problem.masks.get("sinks")
    sink = np.full(rows, -np.inf)
    if sinks is not None:
        sink = np.broadcast_to(sinks.astype(np.float64)[:, None], rows)
    highest = np.where(takes_part, scores, -np.inf).max(axis=-1, initial=-np.inf)
    highest = np.maximum(highest, sink)
    shift = np.where(np.isfinite(highest), highest, 0)
    weights = np.exp(np.where(takes_part, scores - shift[..., None], -np.inf))
    of_sink = np.exp(sink - shift)
    total = weights.sum(axis=-1) + of_sink
    empty = ~takes_part.any(axis=-1)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(total)
    weights /= np.where(total > 0, total, 1)[..., None]
    if problem.options.get("empty_rows") == "uniform" and sinks is None:
        weights[empty] = 1 / scores.shape[-1]
    lost = np.zeros(rows)
    if sinks is not None:
        lost = of_sink / total * np.abs(sink)
    return weights, lse, lost


def solve(problem, datatype):
    """The answer, and the tolerances of a request in `datatype`."""
    group = problem.query.shape[1] // problem.key.shape[1]
    query = problem.query.astype(np.float64)
    key = np.repeat(problem.key.astype(np.float64), group, axis=1)
    value = np.repeat(problem.value.astype(np.float64), group, axis=1)
    scores, magnitude = scores_of(problem, query, key)
    if cap := problem.options.get("softcap"):
        scores = cap * np.tanh(scores / cap)
    if "bias" in problem.masks:
        bias = problem.masks["bias"].astype(np.float64)
        scores = scores + bias
        magnitude = magnitude + np.abs(bias)
    takes_part = keys_that_take_part(problem, scores.shape)
    weights, lse, of_sink = softmax(problem, scores, takes_part)
    kappa = np.where(takes_part, magnitude, 0).max(axis=-1, initial=0)
    kappa = np.maximum(kappa, of_sink)[..., None]
    output = weights @ value
    weighted = weights @ np.abs(value)
    u_in = 0 if datatype == "FP32" else ROUNDING[datatype]
    of_output = ROUNDING[datatype] * np.abs(output) + u_in * weighted
    of_output += EPS * (2 + kappa) * (weighted + np.abs(output))
    # Weights and products that count as 0.
    vanished = 1 + key.shape[-2] + np.abs(value).sum(axis=-2, keepdims=True)
    with np.errstate(invalid="ignore"):
        of_lse = EPS * (1 + kappa[..., 0] + np.abs(lse))
    return Answer(
        output,
        weights,
        lse,
        FACTOR * of_output + SMALLEST[datatype] + SMALLEST["FP32"] * vanished,
        FACTOR * EPS * weights * (1 + 2 * kappa) + SMALLEST["FP32"],
        FACTOR * of_lse,
    )


def farthest(actual, expected, tolerance):
    """How many tolerances the worst element is off: at most 1 in a good answer."""
    with np.errstate(invalid="ignore"):
        off = np.abs(actual - expected) / tolerance
    off = np.where(actual == expected, 0, off)  # infinities, too
    return float(np.nan_to_num(off, nan=np.inf).max(initial=0))
