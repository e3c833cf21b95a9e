"""Heat maps and costs: what is drawn where."""

import io

import numpy as np
import pytest

from attention_client.bench import Cost
from attention_client.plots import show_costs, show_heatmaps


def test_rows_and_columns_are_those_of_the_weights():
    weights = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5) / 120
    figure = show_heatmaps(weights, "Keys", "Queries", titles=["a", "b", "c"])
    maps = figure.axes[:6]
    for axis, matrix in zip(maps, weights.reshape(6, 4, 5), strict=True):
        np.testing.assert_array_equal(axis.images[0].get_array(), matrix)
    assert [axis.get_title() for axis in maps] == ["a", "b", "c", "", "", ""]
    assert [axis.get_xlabel() for axis in maps] == [""] * 3 + ["Keys"] * 3
    assert [axis.get_ylabel() for axis in maps] == ["Queries", "", ""] * 2
    assert len({axis.images[0].get_clim() for axis in maps}) == 1


def test_tokens_label_both_sides():
    figure = show_heatmaps(np.eye(2), tokens=["the", "cat"])
    axis = figure.axes[0]
    assert [text.get_text() for text in axis.get_xticklabels()] == ["the", "cat"]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["the", "cat"]
    figure = show_heatmaps(np.ones((1, 2)), tokens=(["le"], ["the", "cat"]))
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["le"]


def test_tokens_are_drawn_as_they_are():
    tokens = ["$$", "$x^2$"]
    figure = show_heatmaps(np.eye(2), tokens=tokens)
    figure.savefig(io.BytesIO())
    (axis, _) = figure.axes
    for label in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        assert label.get_text() in tokens and not label.get_parse_math()


def test_a_row_of_nan_leaves_the_scale_of_the_others():
    weights = np.full((2, 4, 4), 0.25)
    weights[1, 2] = np.nan
    for axis in show_heatmaps(weights).axes[:2]:
        assert axis.images[0].get_clim() == (0, 0.25)


@pytest.mark.parametrize("all_the_same", [0, np.nan, np.inf])
def test_maps_without_a_largest_weight_have_a_scale(all_the_same):
    axis = show_heatmaps(np.full((2, 2), all_the_same)).axes[0]
    assert axis.images[0].get_clim() == (0, 1)


@pytest.mark.parametrize("count", [1, 2, 10, 300])
def test_positions_are_whole_numbers(count):
    axis = show_heatmaps(np.ones((count, count))).axes[0]
    for ticks in (axis.get_xticks(), axis.get_yticks()):
        assert set(ticks) <= set(range(count))
        assert 1 <= len(ticks) <= 10


@pytest.mark.parametrize(
    "shape, options, said",
    [
        ((3,), {}, "matrices: shape"),
        ((1, 1, 0, 3), {}, "with queries and keys"),
        ((2, 2), {"titles": ["a", "b"]}, "expected 1, one a column"),
        ((2, 3), {"tokens": ["a", "b"]}, "expected 2 and 3"),
    ],
)
def test_what_cannot_be_drawn_is_said(shape, options, said):
    with pytest.raises(ValueError, match=said):
        show_heatmaps(np.ones(shape), **options)


def cost(scoring, length, width):
    return Cost(scoring, 1, 8, length, width, 3, length / 1e3, 1.0, length / 2e3)


def test_costs_are_lines_over_lengths_or_widths():
    costs = [cost(s, n, 64) for s in ("gaussian", "additive") for n in (16, 256)]
    (axis,) = show_costs(costs).axes
    assert [t.get_text() for t in axis.get_legend().texts] == ["gaussian", "additive"]
    whole, computing = axis.lines[:2]
    np.testing.assert_array_equal(whole.get_xdata(), [16, 256])
    np.testing.assert_array_equal(whole.get_ydata(), [16, 256])
    np.testing.assert_array_equal(computing.get_ydata(), [8, 128])

    widths = [cost("gaussian", n, w) for n in (16, 256) for w in (32, 64, 128)]
    (axis,) = show_costs(widths, by="width").axes
    names = [text.get_text() for text in axis.get_legend().texts]
    assert names == ["gaussian, length 16", "gaussian, length 256"]
    np.testing.assert_array_equal(axis.lines[0].get_xdata(), [32, 64, 128])


def test_costs_that_cannot_be_drawn_are_said():
    with pytest.raises(ValueError, match="expected what bench"):
        show_costs([])
    with pytest.raises(ValueError, match="expected 'length' or 'width'"):
        show_costs([cost("gaussian", 1, 1)], by="height")
