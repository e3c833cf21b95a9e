"""Attention by its definition, in FP64, for the tests to hold servers to."""

import numpy as np


def scaled_dot_product(query, key, scale=None):
    if scale is None:
        scale = 1 / np.sqrt(query.shape[-1])
    return scale * query @ np.swapaxes(key, -1, -2)


def additive(query, key, w_q, w_k, w_v):
    hidden = (query @ w_q)[..., :, None, :] + (key @ w_k)[..., None, :, :]
    return np.tanh(hidden) @ w_v.reshape(-1)


def gaussian(query, key, sigma=1.0):
    difference = query[..., :, None, :] - key[..., None, :, :]
    return -np.sum(difference**2, axis=-1) / (2 * sigma**2)


def bilinear(query, key, m, scale=1.0):
    return scale * query @ m @ np.swapaxes(key, -1, -2)


def attend(scores, value, valid_lens=None, attend_mask=None, bias=None):
    """Output, weights and log-sum-exp; every row must have a key."""
    if bias is not None:
        scores = scores + bias
    if attend_mask is not None:
        scores = np.where(attend_mask, scores, -np.inf)
    if valid_lens is not None:
        lengths = np.asarray(valid_lens).reshape(-1, *[1] * (scores.ndim - 1))
        scores = np.where(np.arange(scores.shape[-1]) < lengths, scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - highest)
    total = weights.sum(axis=-1, keepdims=True)
    weights /= total
    lse = (highest + np.log(total))[..., 0]
    return weights @ value, weights, lse


class Problem:
    """Random tensors of one batch of heads, and what they give."""

    def __init__(self, batch=2, heads=3, queries=5, keys=7, width=8, seed=1):
        random = np.random.default_rng(seed)

        def normal(*shape):
            return random.normal(size=shape).astype(np.float32)

        self.query = normal(batch, heads, queries, width)
        self.key = normal(batch, heads, keys, width)
        self.value = normal(batch, heads, keys, width)
        self.w_q = normal(width, 4)
        self.w_k = normal(width, 4)
        self.w_v = normal(4)
        self.m = normal(width, width)

    @property
    def tensors(self):
        return {"query": self.query, "key": self.key, "value": self.value}

    def expected(self, score=scaled_dot_product, *parameters, masks=None, **options):
        """(output, weights, lse) of a scoring function with these parameters."""
        wide = [np.asarray(p, np.float64) for p in (self.query, self.key, *parameters)]
        scores = score(*wide, **options)
        return attend(scores, self.value.astype(np.float64), **(masks or {}))


# The built-in models: which inputs they take beside query, key and value, and what
# computes their scores.
MODELS = {
    "scaled_dot_product_attention": ([], scaled_dot_product),
    "additive_attention": (["w_q", "w_k", "w_v"], additive),
    "gaussian_attention": ([], gaussian),
    "bilinear_attention": (["m"], bilinear),
}
