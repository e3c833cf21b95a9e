"""Weights and costs as pictures, with matplotlib (attention-client[plots])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attention_client._arrays import Array, to_numpy
from attention_client.bench import Cost

MOST_MAPS = 256  # in one figure


def show_heatmaps(
    matrices: Any,
    xlabel: str = "Keys",
    ylabel: str = "Queries",
    titles: Sequence[str] | None = None,
    figsize: tuple[float, float] | None = None,
    cmap: str = "Reds",
    *,
    tokens: Sequence[str] | tuple[Sequence[str], Sequence[str]] | None = None,
) -> Any:
    """Draws weights as heat maps in rows and columns; returns matplotlib's figure.

    matrices: (rows, columns, queries, keys), such as the weights of a few entries and
    their heads; (columns, queries, keys) and (queries, keys) are one row.
    titles: one for each column. figsize: inches of one map.
    tokens: labels of keys and queries, or a tuple of the queries' and the keys'.
    """
    from matplotlib.figure import Figure

    maps: Array = to_numpy(matrices, "matrices").astype(np.float64)
    if not 2 <= maps.ndim <= 4:
        raise ValueError(
            f"matrices: shape {maps.shape} (expected (queries, keys), with rows and "
            "columns of maps before them or without)"
        )
    maps = maps.reshape((1, 1, *maps.shape)[-4:])
    rows, columns, queries, keys = maps.shape
    if not 1 <= rows * columns <= MOST_MAPS or queries == 0 or keys == 0:
        raise ValueError(
            f"matrices: shape {maps.shape} (expected 1 to {MOST_MAPS} maps with "
            "queries and keys)"
        )
    if titles is not None and len(titles) != columns:
        raise ValueError(f"titles: {len(titles)} (expected {columns}, one a column)")
    of_queries, of_keys = _labels(tokens, queries, keys)
    if figsize is None:
        figsize = (2.5, 2.5) if tokens is None else (1 + keys / 5, 1 + queries / 5)

    # A row of NaN, as NaN among the keys makes it, leaves the others their colours.
    largest = maps.max(initial=0, where=np.isfinite(maps)) or 1
    figure = Figure(
        figsize=(columns * figsize[0], rows * figsize[1]), layout="constrained"
    )
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for i, row in enumerate(axes):
        for j, axis in enumerate(row):
            image = axis.imshow(maps[i, j], cmap=cmap, vmin=0, vmax=largest)
            if i == rows - 1:
                axis.set_xlabel(xlabel)
            if j == 0:
                axis.set_ylabel(ylabel)
            if titles is not None and i == 0:
                axis.set_title(titles[j])
            if of_keys is not None:
                axis.set_xticks(range(keys), of_keys, rotation=90, parse_math=False)
            else:
                axis.xaxis.set_major_locator(_positions(keys))
            if of_queries is not None:
                axis.set_yticks(range(queries), of_queries, parse_math=False)
            else:
                axis.yaxis.set_major_locator(_positions(queries))
    figure.colorbar(image, ax=axes, shrink=0.6)
    return figure


def _positions(count: int) -> Any:
    """Whole numbers as labels, not too many."""
    from matplotlib.ticker import FixedLocator

    return FixedLocator(range(count), nbins=8)


def _labels(
    tokens: Sequence[str] | tuple[Sequence[str], Sequence[str]] | None,
    queries: int,
    keys: int,
) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    if tokens is None:
        return None, None
    both: Any = tokens
    if not (isinstance(tokens, tuple) and all(not isinstance(t, str) for t in tokens)):
        both = (tokens, tokens)
    of_queries, of_keys = both
    if len(of_queries) != queries or len(of_keys) != keys:
        raise ValueError(
            f"tokens: {len(of_queries)} of queries, {len(of_keys)} of keys (expected "
            f"{queries} and {keys})"
        )
    return of_queries, of_keys


def show_costs(costs: Sequence[Cost], *, by: str = "length") -> Any:
    """Draws what attention_client.bench has measured; returns matplotlib's figure.

    by: "length" or "width". Lines are calls as their callers see them, dashes the
    computing in them.
    """
    from matplotlib.figure import Figure

    if by not in ("length", "width"):
        raise ValueError(f"by: {by!r} (expected 'length' or 'width')")
    if not costs:
        raise ValueError("costs: none (expected what bench.measure returns)")
    other = "width" if by == "length" else "length"
    lines: dict[str, list[Cost]] = {}
    for cost in costs:
        name = cost.scoring.replace("_", " ")
        if len({getattr(cost, other) for cost in costs}) > 1:
            name += f", {other} {getattr(cost, other)}"
        lines.setdefault(name, []).append(cost)
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axis = figure.subplots()
    for name, points in lines.items():
        extents = [getattr(point, by) for point in points]
        milliseconds = [point.seconds * 1e3 for point in points]
        computing = [point.compute_seconds * 1e3 for point in points]
        (line,) = axis.plot(extents, milliseconds, "o-", label=name)
        axis.plot(extents, computing, "--", color=line.get_color(), alpha=0.6)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(sorted({getattr(cost, by) for cost in costs}))
    axis.xaxis.set_major_formatter("{x:.0f}")
    axis.set_xlabel("queries and keys" if by == "length" else "width")
    axis.set_ylabel("ms (dashes: computing)")
    axis.grid(alpha=0.3)
    axis.legend()
    return figure
