"""Kernel regression: the estimates of the formula, and what is drawn of them."""

import numpy as np
import pytest

from attention_client.kernel_regression import (
    kernel_regression,
    show_kernel_regression,
)


@pytest.fixture
def data(normal):
    x = np.abs(normal(40)) * 2
    return x, np.sin(x) + 0.1 * normal(40)


@pytest.mark.parametrize("sigma", [0.1, 1.0])
def test_estimates_are_nadarayas_and_watsons(client, data, sigma):
    x, y = data
    at = np.linspace(0, 5, 11)
    found = kernel_regression(client, x, y, at, sigma=sigma)
    kernel = np.exp(-((at[:, None] - x) ** 2) / (2 * sigma**2))
    weights = kernel / kernel.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.weights, weights, atol=1e-5)
    np.testing.assert_allclose(found.estimates, weights @ y, atol=1e-5)


@pytest.mark.parametrize(
    "kernel, weigh",
    [
        ("gaussian", lambda u: np.exp(-(u**2) / 2)),
        ("boxcar", lambda u: np.where(u <= 1, 1, 0)),
        ("epanechnikov", lambda u: np.maximum(0.75 * (1 - u**2), 0)),
        ("triangular", lambda u: np.maximum(1 - u, 0)),
    ],
)
@pytest.mark.parametrize("dimensions, functions", [(1, 1), (2, 1), (2, 3)])
def test_a_kernel_is_its_formula(client, normal, kernel, weigh, dimensions, functions):
    x, at = normal(40, dimensions), normal(11, dimensions)
    y = normal(40, functions)
    found = kernel_regression(client, x, y, at, sigma=1.5, kernel=kernel)
    weights = weigh(np.linalg.norm(at[:, None] - x, axis=-1) / 1.5)
    weights = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.weights, weights, atol=1e-5)
    np.testing.assert_allclose(found.estimates, weights @ y, atol=1e-5)
    assert found.at.shape == (11, dimensions)


@pytest.mark.parametrize("kernel", ["gaussian", "triangular"])
def test_points_may_lie_far_from_0(client, data, kernel):
    x, y = data[0].astype(np.float64), data[1]
    at = np.linspace(0, 5, 11)
    near, far = (
        kernel_regression(client, x + there, y, at + there, kernel=kernel)
        for there in (0.0, 1.7e9)  # seconds of this century
    )
    np.testing.assert_allclose(far.weights, near.weights, atol=1e-5)
    np.testing.assert_array_equal(far.at, at + 1.7e9)


def test_an_observation_far_from_the_others_leaves_their_estimates(client):
    x, at = np.append(np.linspace(0, 1, 100), 1e8), np.linspace(0, 1, 11)
    y = np.append(np.sin(6 * x[:-1]), 0)
    found = kernel_regression(client, x, y, at, sigma=0.05)
    kernel = np.exp(-((at[:, None] - x) ** 2) / (2 * 0.05**2))
    expected = kernel @ y / kernel.sum(axis=1)
    np.testing.assert_allclose(found.estimates, expected, atol=1e-4)


def test_an_estimate_that_no_sight_reaches_is_zero(client):
    found = kernel_regression(client, [0, 1], [3, 5], [0.5, 9], kernel="boxcar")
    np.testing.assert_array_equal(found.estimates, [4, 0])
    np.testing.assert_array_equal(found.weights, [[0.5, 0.5], [0, 0]])


def test_a_regression_shows_shapes(client, data):
    shown = repr(kernel_regression(client, *data, np.linspace(0, 5, 11)))
    assert shown.startswith("Regression(at=") and "weights=float32 (11, 40)" in shown


def test_data_estimates_and_weights_are_drawn(client, data):
    at = np.linspace(0, 5, 11)
    found = [kernel_regression(client, *data, at, sigma=s) for s in (0.1, 1)]
    figure = show_kernel_regression(*data, *found, truth=np.sin, titles=["a", "b"])
    left, right, below = figure.axes[:3]
    assert [left.get_title(), right.get_title()] == ["a", "b"]
    seen, truth, estimate = left.lines
    np.testing.assert_array_equal(seen.get_xdata(), data[0])
    np.testing.assert_allclose(truth.get_ydata(), np.sin(at), atol=1e-6)
    np.testing.assert_array_equal(estimate.get_ydata(), found[0].estimates)
    by_x = found[0].weights[:, np.argsort(data[0])]
    np.testing.assert_array_equal(below.images[0].get_array(), by_x)


def test_what_does_not_fit_is_said(client):
    with pytest.raises(ValueError, match=r"at: shape \(\) \(expected \(N\)"):
        kernel_regression(client, [1], [1], 3)
    with pytest.raises(ValueError, match=r"y: 1 observations .expected"):
        kernel_regression(client, [1, 2], [1], [1])
    with pytest.raises(ValueError, match=r"at: points of 1 dimensions .expected 2"):
        kernel_regression(client, [[1, 2]], [1], [1])
    with pytest.raises(ValueError, match=r"kernel: 'cosine' .expected one of gaussian"):
        kernel_regression(client, [1], [1], [1], kernel="cosine")
    with pytest.raises(ValueError, match=r"sigma: 0 .expected more than 0"):
        kernel_regression(client, [1], [1], [1], sigma=0, kernel="boxcar")
    with pytest.raises(ValueError, match="expected 1 or more"):
        show_kernel_regression([1], [1])
