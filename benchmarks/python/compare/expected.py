"""The same attention in NumPy and FP64: whether a contender computes what it should."""

import numpy as np

from compare.case import Case
from compare.tensors import entries_of

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
        self.starts = tensors.get("query_starts")
        self.rows: list[np.ndarray] = []
        self.output: list[np.ndarray] = []  # of each entry, (Hq, rows, Dv)
        self.weights: list[np.ndarray] = []
        for query, key, value, mask in entries_of(case, tensors):
            length = query.shape[1]
            rows = np.linspace(0, length - 1, min(ROWS, length)).astype(int)
            weights = np.empty((len(query), len(rows), key.shape[1]))
            output = np.empty((len(query), len(rows), value.shape[-1]))
            for h in range(len(query)):
                k, v = (t[h // case.groups].astype(np.float64) for t in (key, value))
                scores = scores_of(case, tensors, query[h, rows].astype(np.float64), k)
                if mask is not None:
                    part = mask[h, rows]
                    scores = (
                        scores + part if case.alibi else np.where(part, scores, -np.inf)
                    )
                sink = tensors["sinks"][h] if case.sinks else None
                weights[h] = softmax(scores, sink)
                output[h] = weights[h] @ v
            self.rows.append(rows)
            self.output.append(output)
            if case.weights:
                self.weights.append(weights)

    def error_in(self, results: dict[str, np.ndarray]) -> str:
        """What is wrong with a contender's results; empty where nothing is."""
        wanted = {"output": self.output, "weights": self.weights}
        for name, expected in wanted.items():
            if not expected:
                continue
            found = self.entries_in(np.asarray(results[name]), expected[0].shape[-1])
            error = np.concatenate(
                [
                    (one[:, rows].astype(np.float64) - right).ravel()
                    for one, rows, right in zip(found, self.rows, expected)
                ]
            )
            size = rms(np.concatenate([right.ravel() for right in expected]))
            # NaN is an error too.
            if not rms(error) <= TOLERANCE[self.case.dtype] * size:
                return f"wrong {name}: relative error {rms(error) / size:.2g}"
        return ""

    def entries_in(self, result: np.ndarray, width: int) -> list[np.ndarray]:
        """Each entry's part of a result, (Hq, Lq, width)."""
        heads = self.case.query_heads
        if self.starts is None:
            length = self.case.query_length
            return list(result.reshape(self.case.batch, heads, length, width))
        tokens = result.reshape(-1, heads, width)
        return [part.swapaxes(0, 1) for part in np.split(tokens, self.starts[1:-1])]


def softmax(scores: np.ndarray, sink: float | None) -> np.ndarray:
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    if sink is not None:
        total += np.exp(sink - top)
    return weights / total


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(array**2)))
