"""Nadaraya-Watson kernel regression: attention with a Gaussian kernel, and one head.

Queries are the places where a function is estimated, keys the places where it was seen,
values what was seen there. A weight says how much a sight counts for a place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_client._arrays import Array, to_numpy
from attention_client._summary import summary
from attention_client.client import Client
from attention_client.scoring import Gaussian


@dataclass(frozen=True, eq=False)
class Regression:
    """Estimates, and how they came about: weights has a row for each of them."""

    at: Array  # (Q)
    estimates: Array  # (Q)
    weights: Array  # (Q, N)

    __repr__ = summary


def kernel_regression(
    client: Client, x: Any, y: Any, at: Any, *, sigma: float = 1.0
) -> Regression:
    """Estimates a function at these places from what was seen of it: y at x.

    x, y: (N), at: (Q). sigma: how far a sight reaches; estimates follow the data more
    closely with a small one, and more smoothly with a large one.

        seen = kernel_regression(client, x, y, at=np.linspace(0, 5, 50), sigma=0.5)
        show_kernel_regression(x, y, seen).savefig("regression.png")
    """
    arrays = {"x": x, "y": y, "at": at}
    columns = {}
    for name, value in arrays.items():
        array = np.asarray(to_numpy(value, name), np.float32)
        if array.ndim != 1 or array.size == 0:
            raise ValueError(
                f"{name}: shape {array.shape} (expected (N), N at least 1)"
            )
        columns[name] = array[:, np.newaxis]
    if columns["x"].shape != columns["y"].shape:
        sizes = f"{columns['x'].size} and {columns['y'].size}"
        raise ValueError(f"x, y: {sizes} numbers (expected as many of each)")
    result = client.attend(
        columns["at"],
        columns["x"],
        columns["y"],
        scoring=Gaussian(sigma),
        weights=True,
    )
    return Regression(columns["at"][:, 0], result.output[:, 0], result.weights)


def show_kernel_regression(
    x: Any, y: Any, *regressions: Regression, truth: Any = None, titles: Any = None
) -> Any:
    """Draws the data, the estimates and their weights; returns matplotlib's figure.

    Each regression has a column. truth: the function's values at the places of the
    estimates, or a function. titles: one for each column.
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
        above.plot(x, y, "o", color="tab:gray", alpha=0.5, label="seen")
        if truth is not None:
            values = truth(found.at) if callable(truth) else truth
            above.plot(found.at, values, "--", color="tab:blue", label="truth")
        above.plot(found.at, found.estimates, color="tab:red", label="estimate")
        above.set_xlabel("x")
        if titles is not None:
            above.set_title(titles[column])
        order = np.argsort(to_numpy(x, "x"))
        image = below.imshow(found.weights[:, order], cmap="Reds", aspect="auto")
        below.set_xlabel("keys: what was seen, by x")
        figure.colorbar(image, ax=below, shrink=0.7)
    axes[0, 0].set_ylabel("y")
    axes[0, 0].legend()
    axes[1, 0].set_ylabel("queries: estimates")
    return figure
