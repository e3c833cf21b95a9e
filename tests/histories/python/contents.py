"""Keys and values that say who appended them, and what a sequence can hold."""

import numpy as np

WIDTH = 4
# These score each element of each key by itself: asked for scores, the server answers
# with the keys. The last one's log-sum-exp tells how many there are.
QUERIES = np.vstack([np.eye(WIDTH), np.zeros((1, WIDTH))]).astype("<f4")
# Outputs of these depend on all values. Scores of the first two are so large that FP32's
# rounding of them shows in the weights.
SMALL_SCORES = slice(2, None)
# Half of what one element of 160 values makes by 1/64.
TOLERANCE = 4e-5


def key_id(process, operation, index):
    """Below 2^16, 2^24 and 2^7: FP32 holds each part exactly."""
    return (process << 24 | operation) << 7 | index


def describe(identifier):
    operation = identifier >> 7
    return f"{operation >> 24}.{operation & 0xFFFFFF}.{identifier & 0x7F}"


def _noise(identifiers):
    """(n, 6) in [-2, 2), multiples of 1/64, of which the ids are the seeds."""
    with np.errstate(over="ignore"):
        mixed = identifiers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
    octets = mixed.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :6]
    return (octets.astype(np.float32) - 128) / 64


def rows_of(identifiers):
    """Keys and values, (n, WIDTH) each."""
    ids = np.array(identifiers, np.int64).reshape(-1)
    noise = _noise(ids)
    key = np.empty((len(ids), WIDTH), "<f4")
    key[:, 0] = ids >> 7 & 0xFFFFFF
    key[:, 1] = (ids >> 31 << 7) | (ids & 0x7F)
    key[:, 2:] = noise[:, :2]
    return key, np.ascontiguousarray(noise[:, 2:], "<f4")


class Torn(Exception):
    """Keys that nobody has appended."""


def ids_of(keys):
    """What rows_of() made them of."""
    whole = keys[:, :2].astype(np.int64)
    ids = (whole[:, 1] >> 7 << 24 | whole[:, 0]) << 7 | whole[:, 1] & 0x7F
    if not np.array_equal(rows_of(ids)[0], keys):
        raise Torn(f"keys that nobody has appended: {keys.tolist()}")
    return tuple(ids.tolist())


class Contents:
    """All that sequences were seen to hold, as a tree: a content is a number, and equal
    ones are equal numbers."""

    EMPTY = 0

    def __init__(self):
        self._parents = [0]
        self._last = [0]
        self._lengths = [0]
        self._children = {}
        self._outputs = {}

    def length(self, content):
        return self._lengths[content]

    def append(self, content, ids):
        for identifier in ids:
            child = self._children.get((content, identifier))
            if child is None:
                child = len(self._parents)
                self._children[content, identifier] = child
                self._parents.append(content)
                self._last.append(identifier)
                self._lengths.append(self._lengths[content] + 1)
            content = child
        return content

    def of(self, ids):
        return self.append(self.EMPTY, ids)

    def first(self, content, length):
        for _ in range(self._lengths[content] - length):
            content = self._parents[content]
        return content

    def ids(self, content):
        ids = []
        while content != self.EMPTY:
            ids.append(self._last[content])
            content = self._parents[content]
        return tuple(reversed(ids))

    def output(self, content):
        """What QUERIES with small scores get, with scale 1."""
        if content not in self._outputs:
            key, value = (a.astype(np.float64) for a in rows_of(self.ids(content)))
            weights = np.exp(QUERIES[SMALL_SCORES] @ key.T)
            total = weights.sum(axis=-1, keepdims=True)
            self._outputs[content] = weights @ value / np.maximum(total, 1e-300)
        return self._outputs[content]

    def gives(self, content, output):
        off = np.abs(self.output(content) - output[SMALL_SCORES])
        return bool(off.max() < TOLERANCE)
