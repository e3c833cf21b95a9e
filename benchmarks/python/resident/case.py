"""A case, and the two ways that go to our server: keys that are there, and keys sent."""

import statistics
import time

import ml_dtypes
import numpy as np

from attention_client import quantize

HEADS, KV_HEADS, WIDTH = 32, 8, 128
# Of keys and values: how a sequence names it, and the type of the numbers that are
# appended, which is also the queries'.
TYPES = {
    "BF16": ("bfloat16", ml_dtypes.bfloat16),
    "FP32": ("float32", np.float32),
    "INT8": ("int8", ml_dtypes.bfloat16),
}
KEYS_OF_AN_APPEND = 8192
# Of keys and values in one message.
MOST_SENT_BYTES = 128 << 20
# Root mean square of the error over that of the answer: a wrong answer is far beyond it.
TOLERANCE = 5e-2


class Case:
    """`batch` sequences of `length` keys, stored as `name` of TYPES. All have the same keys
    and values, each in memory of its own."""

    def __init__(self, stack, client, batch, length, name):
        self.batch, self.length, self.name = batch, length, name
        stored, self.type = TYPES[name]
        generator = np.random.default_rng(1)

        def numbers(*shape):
            return generator.standard_normal(shape, np.float32).astype(self.type)

        self.key = numbers(KV_HEADS, length, WIDTH)
        self.value = numbers(KV_HEADS, length, WIDTH)
        self.query = numbers(batch, HEADS, 1, WIDTH)
        self._expected = expected(self.query, self.key, self.value)
        self.bytes = batch * 2 * self.key.size * np.dtype(stored_type(stored)).itemsize
        self._client = client
        self.resident = Resident(self, self._sequences(stack, stored))
        self.sent = Sent(self)

    def _sequences(self, stack, stored):
        made = []
        for _ in range(self.batch):
            sequence = self._client.sequence(heads=KV_HEADS, width=WIDTH, dtype=stored)
            made.append(stack.enter_context(sequence))
            for key, value in self.appends():
                sequence.append(key, value)
        return made

    def appends(self):
        """The keys and values in pieces, as they are appended."""
        for first in range(0, self.length, KEYS_OF_AN_APPEND):
            some = slice(first, first + KEYS_OF_AN_APPEND)
            yield self.key[:, some], self.value[:, some]

    def attend_sequences(self, sequences):
        return self._client.attend_sequences(sequences, self.query)

    def attend(self, query, key, value, **scales):
        return self._client.attend(query, key, value, **scales)

    def check(self, who, output):
        error = output.astype(np.float64).reshape(self._expected.shape) - self._expected
        size = np.sqrt(np.mean(error**2)) / np.sqrt(np.mean(self._expected**2))
        if not size <= TOLERANCE:  # NaN is an error too
            raise RuntimeError(f"{who}: relative error {size:.2g}")


class Way:
    """Something that is called again and again, its first answer checked."""

    can = True

    def measure(self, seconds):
        """Seconds of a call, as often as fits; the median."""
        taken = [self.call()]  # once before: connected, memory touched
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(taken) < 3:
            taken.append(self.call())
        return statistics.median(taken[1:])


class Resident(Way):
    """Keys that the server has."""

    def __init__(self, case, sequences):
        self._case, self._sequences = case, sequences
        self.computing = []  # what the server says of each call
        case.check("resident", case.attend_sequences(sequences).output)

    def call(self):
        began = time.perf_counter()
        result = self._case.attend_sequences(self._sequences)
        seconds = time.perf_counter() - began
        self.computing.append(result.compute_ns / 1e9)
        return seconds


class Sent(Way):
    """Keys that come with each call, in as many messages as they need."""

    def __init__(self, case):
        self._case = case
        key, value, self._scales = case.key, case.value, {}
        if case.name == "INT8":
            key, self._scales["key_scale"] = quantize(key)
            value, self._scales["value_scale"] = quantize(value)
        self._key, self._value = key, value
        each = key.nbytes + value.nbytes
        self._at_once = max(1, min(case.batch, MOST_SENT_BYTES // each))
        case.check("sent", np.concatenate([output for output, _ in self._calls()]))

    def call(self):
        return sum(seconds for _, seconds in self._calls())

    def _calls(self):
        for first in range(0, self._case.batch, self._at_once):
            query = self._case.query[first : first + self._at_once]

            def for_each(array, count=len(query)):
                return np.broadcast_to(array, (count, *array.shape)).copy()

            key, value = for_each(self._key), for_each(self._value)
            scales = {name: for_each(array) for name, array in self._scales.items()}
            began = time.perf_counter()
            result = self._case.attend(query, key, value, **scales)
            yield result.output, time.perf_counter() - began


def stored_type(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else name


def expected(query, key, value):
    """The answer in FP64: (batch, HEADS, 1, WIDTH)."""
    groups = HEADS // KV_HEADS
    output = np.empty(query.shape)
    for head in range(KV_HEADS):
        k, v = (array[head].astype(np.float64) for array in (key, value))
        of_head = slice(head * groups, (head + 1) * groups)
        q = query[:, of_head, 0].astype(np.float64)
        scores = q @ k.T / np.sqrt(WIDTH)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        output[:, of_head, 0] = weights @ v
    return output
