"""Keys and values that say who appended them, and what a sequence can hold."""

import numpy as np

VALUE_WIDTH = 4
# Half of what one element of 160 values makes by 1/64.
TOLERANCE = 4e-5


def key_id(process, operation, index, kind=0):
    """Below 2^16, 2^24, 2^7 and 3: FP32 holds each part exactly. `kind`: a place in KINDS."""
    return ((kind << 16 | process) << 24 | operation) << 7 | index


def describe(identifier):
    process, operation = identifier >> 31 & 0xFFFF, identifier >> 7 & 0xFFFFFF
    return f"{process}.{operation}.{identifier & 0x7F}"


def _octets(ids):
    """(n, 8), of which the ids are the seeds."""
    with np.errstate(over="ignore"):
        mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
    return mixed.astype("<u8").view(np.uint8).reshape(-1, 8)


class Torn(Exception):
    """Keys that nobody has appended."""


class Kind:
    """How keys are stored, and what is asked of them. `datatype`: FP32, INT8 or FP8.

    The first queries score each element of each key by itself: asked for scores, the server
    answers with the keys. The last one's log-sum-exp tells how many there are.
    """

    def __init__(self, datatype, width):
        self.datatype, self.width = datatype, width
        self.queries = np.vstack([np.eye(width), np.zeros((1, width))]).astype("<f4")
        # Outputs of these depend on all values.
        self.small_scores = slice(None)

    def ids_of(self, keys):
        """What rows() made them of."""
        ids = self._read(keys)
        if not np.array_equal(self.rows(ids)[0], keys):
            raise Torn(f"keys that nobody has appended: {keys.tolist()}")
        return tuple(ids.tolist())


class Plain(Kind):
    """FP32."""

    def __init__(self):
        super().__init__("FP32", 4)
        # Scores of the first two are so large that FP32's rounding of them shows in the
        # weights.
        self.small_scores = slice(2, None)

    def rows(self, ids):
        """Keys (n, width) and values (n, VALUE_WIDTH), by what they mean."""
        # In [-2, 2), multiples of 1/64.
        noise = (_octets(ids)[:, :6].astype(np.float32) - 128) / 64
        key = np.empty((len(ids), self.width), "<f4")
        key[:, 0] = ids >> 7 & 0xFFFFFF
        key[:, 1] = (ids >> 31 << 7) | (ids & 0x7F)
        key[:, 2:] = noise[:, :2]
        return key, np.ascontiguousarray(noise[:, 2:], "<f4")

    def stored(self, ids):
        """The same as it is stored; here it is the same."""
        return self.rows(ids)

    def _read(self, keys):
        whole = keys[:, :2].astype(np.int64)
        return (whole[:, 1] >> 7 << 24 | whole[:, 0]) << 7 | whole[:, 1] & 0x7F


class Scaled(Kind):
    """INT8 or FP8 with a scale for each row: 8, the id's digits to the base 16, and two of
    noise; the scales follow from the id as well. Both types have these numbers exactly."""

    DIGITS = 13

    def __init__(self, datatype, encode):
        super().__init__(datatype, 1 + self.DIGITS + 2)
        self._encode = encode

    def _numbers(self, ids):
        """Keys, values and their scales."""
        octets = _octets(ids)
        key = np.full((len(ids), self.width), 8)
        for digit in range(self.DIGITS):
            key[:, 1 + digit] = ids >> 4 * digit & 15
        key[:, -2:] = octets[:, :2] & 15
        value = (octets[:, 2:6] & 15).astype(int) - 8
        key_scale = 2.0 ** -(4 + (octets[:, 6] & 3).astype(int))
        value_scale = 2.0 ** -(2 + (octets[:, 7] & 1).astype(int))
        return key, value, key_scale.astype("<f4"), value_scale.astype("<f4")

    def rows(self, ids):
        key, value, key_scale, value_scale = self._numbers(ids)
        key, value = key * key_scale[:, None], value * value_scale[:, None]
        return key.astype("<f4"), value.astype("<f4")

    def stored(self, ids):
        """Keys, values, and the scales of both, (n,)."""
        key, value, *scales = self._numbers(ids)
        return self._encode(key), self._encode(value), *scales

    def _read(self, keys):
        with np.errstate(divide="ignore", invalid="ignore"):
            digits = np.nan_to_num(keys / (keys[:, :1] / 8)).astype(np.int64)
        return sum(digits[:, 1 + n] << 4 * n for n in range(self.DIGITS))


def to_int8(numbers):
    return numbers.astype(np.int8)


def to_fp8(numbers):
    """E4M3 of whole numbers from -15 to 15."""
    fraction, exponent = np.frexp(np.abs(numbers))  # 0.5 <= fraction < 1
    bits = (exponent + 6 << 3) | (fraction * 16).astype(int) - 8
    return np.where(numbers == 0, 0, bits | (numbers < 0) << 7).astype(np.uint8)


KINDS = [
    Plain(),
    Scaled("INT8", to_int8),
    Scaled("FP8", to_fp8),
]


def _as_array(identifiers):
    return np.array(identifiers, np.int64).reshape(-1)


def _kind_of(ids):
    """All are of one."""
    return KINDS[ids[0] >> 47] if len(ids) else KINDS[0]


def rows_of(identifiers):
    """Keys and values of one kind, by what they mean."""
    ids = _as_array(identifiers)
    return _kind_of(ids).rows(ids)


def stored_of(identifiers):
    """The same as it is stored, with scales where there are some."""
    ids = _as_array(identifiers)
    return _kind_of(ids).stored(ids)


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
        """What the queries with small scores get, with scale 1."""
        if content not in self._outputs:
            ids = self.ids(content)
            kind = _kind_of(ids)
            key, value = (a.astype(np.float64) for a in rows_of(ids))
            weights = np.exp(kind.queries[kind.small_scores] @ key.T)
            total = weights.sum(axis=-1, keepdims=True)
            self._outputs[content] = weights @ value / np.maximum(total, 1e-300)
        return self._outputs[content]

    def gives(self, content, output):
        if content == self.EMPTY:
            return not output.any()
        small = _kind_of(self.ids(content)).small_scores
        off = np.abs(self.output(content) - output[small])
        return bool(off.max() < TOLERANCE)
