"""The same attention in NumPy and FP64: whether a contender computes what it should."""

import numpy as np

from peers.cases import Case
from peers.tensors import mask_of

ROWS = 24  # of each head; whoever computes the wrong thing does so in all of them

# Root mean square of the error over that of the expected values. Loose: this tells
# another problem from the same one, and one number format from the next: FP16 computed in BF16 is
# off by 4e-3, in FP16 or FP32 by 2e-4 to 6e-4. It does not tell a good sum from a bad one.
TOLERANCE = {"FP32": 1e-3, "FP16": 2e-3, "BF16": 5e-2}


def scores_of(case: Case, tensors: dict, query: np.ndarray, key: np.ndarray):
    """(rows, Lk) scores of one head."""
    if case.scoring == "additive":
        w_q, w_k, w_v = (
            tensors[name].astype(np.float64) for name in ("w_q", "w_k", "w_v")
        )
        features = np.tanh((query @ w_q)[:, None, :] + (key @ w_k)[None, :, :])
        return features @ w_v.reshape(-1)
    if case.scoring == "gaussian":
        squares = ((query[:, None, :] - key[None, :, :]) ** 2).sum(-1)
        return -squares / (2 * case.sigma**2)
    return query @ key.T * case.scale


class Expected:
    """Some rows of the answer to a case."""

    def __init__(self, case: Case, tensors: dict[str, np.ndarray]):
        self.case = case
        count = min(ROWS, case.query_length)
        self.rows = np.linspace(0, case.query_length - 1, count).astype(int)
        query, key, value = (tensors[name] for name in ("query", "key", "value"))
        shape = (case.batch, case.query_heads, count)
        self.output = np.empty((*shape, value.shape[-1]))
        self.weights = np.empty((*shape, case.keys)) if case.weights else None
        mask = mask_of(case, tensors)
        if mask is not None:
            shape = (case.batch, case.query_heads, case.query_length, case.keys)
            mask = np.broadcast_to(mask, shape)
        for b in range(case.batch):
            for h in range(case.query_heads):
                k, v = (t[b, h // case.groups].astype(np.float64) for t in (key, value))
                scores = scores_of(
                    case, tensors, query[b, h, self.rows].astype(np.float64), k
                )
                if case.alibi:
                    scores = scores + mask[b, h, self.rows]
                elif mask is not None:
                    scores = np.where(mask[b, h, self.rows], scores, -np.inf)
                top = scores.max(-1, keepdims=True)
                weights = np.exp(scores - top)
                total = weights.sum(-1, keepdims=True)
                if case.sinks:
                    total += np.exp(tensors["sinks"][h] - top)
                weights /= total
                self.output[b, h] = weights @ v
                if self.weights is not None:
                    self.weights[b, h] = weights

    def error_in(self, results: dict[str, np.ndarray]) -> str:
        """What is wrong with a contender's results; empty where nothing is."""
        wanted = {"output": self.output}
        if self.weights is not None:
            wanted["weights"] = self.weights
        for name, expected in wanted.items():
            full = (*expected.shape[:2], self.case.query_length, expected.shape[-1])
            actual = np.asarray(results[name]).reshape(full)[:, :, self.rows]
            error = rms(actual.astype(np.float64) - expected) / rms(expected)
            if not error <= TOLERANCE[self.case.dtype]:  # NaN is an error too
                return f"wrong {name}: relative error {error:.2g}"
        return ""


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(array**2)))
