"""Nadaraya-Watson kernel regression: attention with one head.

Queries are the points where a function is estimated, keys the points where it was
observed, values what was observed there. A weight says how much an observation counts
for an estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_client._arrays import Array, to_numpy
from attention_client._options import Options
from attention_client._summary import summary
from attention_client.errors import InvalidArgumentError
from attention_client.scoring import Gaussian, ScaledDotProduct

# Kernels of u = |at - x| / sigma that are 0 beyond some distance: what an
# observation weighs before weights are made to sum to 1.
_KERNELS: dict[str, Callable[[Array], Array]] = {
    "boxcar": lambda u: np.where(u <= 1, 1.0, 0.0),
    "epanechnikov": lambda u: np.maximum(1 - u**2, 0),
    "triangular": lambda u: np.maximum(1 - u, 0),
}
KERNELS = ("gaussian", *_KERNELS)


@dataclass(frozen=True, eq=False)
class Regression:
    """Estimates, and how they came about: weights has a row for each of them."""

    at: Array  # (Q), or (Q, D)
    estimates: Array  # (Q), or (Q, M)
    weights: Array  # (Q, N)

    __repr__ = summary


def kernel_regression(
    client: Any,
    x: Any,
    y: Any,
    at: Any,
    *,
    sigma: float = 1.0,
    kernel: str = "gaussian",
) -> Regression:
    """Estimates a function at some points from observations of it: y at x.

    x: (N), or (N, D) for points of D dimensions; at: (Q) or (Q, D); y: (N), or (N, M)
    for M functions at once. sigma: how far an observation reaches; estimates follow the
    data more closely with a small one, and more smoothly with a large one.

    kernel: what an observation at a distance of u sigmas weighs: "gaussian"
    exp(-u^2 / 2), "boxcar" 1 up to u = 1, "epanechnikov" 1 - u^2 and "triangular"
    1 - u up to there. (Dive into Deep Learning calls the triangular one Epanechikov.)
    But for the Gaussian one, an estimate that no observation reaches is 0, and so are
    its weights.

        seen = kernel_regression(client, x, y, at=np.linspace(0, 5, 50), sigma=0.5)
        show_kernel_regression(x, y, seen).savefig("regression.png")
    """
    if kernel not in KERNELS:
        raise InvalidArgumentError(
            f"kernel: {kernel!r} (expected one of {', '.join(KERNELS)})"
        )
    points, seen, where = (
        _rows(value, name) for name, value in (("x", x), ("y", y), ("at", at))
    )
    if len(points) != len(seen):
        raise InvalidArgumentError(
            f"y: {len(seen)} observations (expected {len(points)}, "
            "one for each point of x)"
        )
    if where.shape[1] != points.shape[1]:
        raise InvalidArgumentError(
            f"at: points of {where.shape[1]} dimensions (expected {points.shape[1]}, "
            "as x has)"
        )
    options: Options = {"scoring": Gaussian(sigma), "weights": True}
    if kernel != "gaussian":
        options["scoring"] = ScaledDotProduct(0.0)  # the bias is the whole score
        options["bias"] = _scores(where, points, sigma, kernel)
    # Distances are all that counts. In float32, they would be lost far from 0, or from
    # most points: an outlier takes the mean along, and not the median.
    centre = np.sort(points, axis=0)[len(points) // 2]
    result = client.attend(where - centre, points - centre, seen, **options)
    return Regression(
        where[:, 0] if np.ndim(at) == 1 else where,
        result.output[:, 0] if np.ndim(y) == 1 else result.output,
        result.weights,
    )


def _rows(value: Any, name: str) -> Array:
    """(N, D), in float64; one dimension where there is none."""
    array = np.asarray(to_numpy(value, name), np.float64)
    if array.ndim not in (1, 2) or array.size == 0:
        raise InvalidArgumentError(
            f"{name}: shape {array.shape} (expected (N) or (N, D), each at least 1)"
        )
    return array if array.ndim == 2 else array[:, np.newaxis]


def _scores(where: Array, points: Array, sigma: float, kernel: str) -> Array:
    """The kernel's logarithm, whose softmax has the kernel's weights: (Q, N)."""
    if not sigma > 0:
        raise InvalidArgumentError(f"sigma: {sigma!r} (expected more than 0)")
    differences = where[:, np.newaxis] - points
    distances = np.linalg.norm(differences, axis=-1) / sigma
    with np.errstate(divide="ignore"):
        scores: Array = np.log(_KERNELS[kernel](distances)).astype(np.float32)
    return scores


def show_kernel_regression(
    x: Any, y: Any, *regressions: Regression, truth: Any = None, titles: Any = None
) -> Any:
    """Draws the data, the estimates and their weights; returns matplotlib's figure.

    Points and functions have one dimension. Each regression has a column. truth: the
    function's values at the points of the estimates, or a function. titles: one for
    each column.
    """
    from matplotlib.figure import Figure

    count = len(regressions)
    if count == 0 or (titles is not None and len(titles) != count):
        raise ValueError(
            f"regressions: {count} (expected 1 or more, each with a title)"
        )
    figure = Figure(figsize=(4 * count, 6.5), layout="constrained")
    axes = figure.subplots(2, count, squeeze=False, sharey="row")
    for column, found in enumerate(regressions):
        above, below = axes[:, column]
        above.plot(x, y, "o", color="tab:gray", alpha=0.5, label="observed")
        if truth is not None:
            values = truth(found.at) if callable(truth) else truth
            above.plot(found.at, values, "--", color="tab:blue", label="truth")
        above.plot(found.at, found.estimates, color="tab:red", label="estimate")
        above.set_xlabel("x")
        if titles is not None:
            above.set_title(titles[column])
        order = np.argsort(to_numpy(x, "x"))
        image = below.imshow(found.weights[:, order], cmap="Reds", aspect="auto")
        below.set_xlabel("keys: observations, by x")
        figure.colorbar(image, ax=below, shrink=0.7)
    axes[0, 0].set_ylabel("y")
    axes[0, 0].legend()
    axes[1, 0].set_ylabel("queries: estimates")
    return figure
