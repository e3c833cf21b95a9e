"""What a sequence over several servers answers, beside one at one server."""

import numpy as np

HEADS, WIDTH, KEYS = 2, 16, 1000


def assert_same(answer, expected):
    assert answer.output.shape == expected.output.shape
    np.testing.assert_allclose(answer.output, expected.output, rtol=0, atol=1e-6)
    np.testing.assert_allclose(answer.lse, expected.lse, rtol=1e-6, atol=1e-6)
