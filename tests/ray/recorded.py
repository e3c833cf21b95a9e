"""A sequence over the cluster, and all that threads do to it, for a checker.

tests/histories has it. Two threads append, often at one position at once; others read
and fork meanwhile. Each has a handle of its own, as programs on other machines do.
"""

import itertools
import threading
import time

import numpy as np
from checker import check
from contents import KINDS, Contents, key_id, rows_of
from operations import FOREVER, Operation

from attention_client import (
    AbortedError,
    DeadlineExceededError,
    ResourceExhaustedError,
    UnavailableError,
)

KIND = KINDS[0]
FORM = {"heads": 1, "width": KIND.width, "value_width": 4}
# A range has as many keys; an append of MANY goes over the ends of two.
RANGE, MANY = 64, 100
HURRY = 0.004  # seconds: such a call is over somewhere on its way
PATIENCE = 60
LONGEST = 1000  # keys, from which on what was appended last is appended again


class Recorded:
    def __init__(self, cluster, replicas, seed):
        self._cluster = cluster
        self._random = np.random.default_rng(seed)
        self._operations = []
        self._lock = threading.Lock()
        self._number = 0  # of the last append
        self.sequence = cluster.sequence(**FORM, replicas=replicas, range_keys=RANGE)

    # What a thread does again and again.

    def append(self):
        """Of one thread: by itself, or with a question."""
        has_room = len(self.sequence) < LONGEST
        if has_room:
            self._number += 1
        number = self._number
        count = MANY if number % 25 == 0 else 1 + number % 3
        ids = tuple(key_id(1, number, n) for n in range(count))
        keys, values = (rows[np.newaxis] for rows in rows_of(ids))
        if has_room:
            self._position = len(self.sequence)
        position = self._position
        placed = {"keys": ids, "position": position}
        # As who has lost an answer does: the same keys at the same place.
        # Not of the one that is appended again and again: the checker tries each of
        # those whose outcome is unknown at every step.
        is_hurried = has_room and number % 4 == 0
        for timeout in (HURRY if is_hurried else PATIENCE, PATIENCE):
            begin = time.monotonic_ns()
            try:
                if number % 2:
                    length = self.sequence.append(
                        keys, values, position=position, timeout=timeout
                    )
                    self._note("append", begin, length=length, **placed)
                else:
                    answer = self._ask(self.sequence, (keys, values), position, timeout)
                    self._note("attend", begin, **answer, **placed)
                return
            except AbortedError as error:
                kind = "append" if number % 2 else "attend"
                done = error.appended
                if done > 0:
                    self._note("append", begin, keys=ids[:done], position=position)
                left = {"keys": ids[done:], "position": position + done}
                self._note(kind, begin, code="ABORTED", **left)
                self.sequence.describe()
                return
            except (DeadlineExceededError, ResourceExhaustedError):
                assert timeout == HURRY
                kind = "append" if number % 2 else "attend"
                self._note(kind, begin, code="UNKNOWN", end=FOREVER, **placed)

    def rival(self):
        """What another thread calls that appends; while there is room."""
        handle = self._cluster.open_sequence(self.sequence.name)
        numbers = itertools.count()

        def append():
            handle.describe()
            if (position := len(handle)) > LONGEST // 2:
                return
            ids = (key_id(2, next(numbers), 0),)
            begin = time.monotonic_ns()
            told = {"keys": ids, "position": position}
            try:
                rows = (rows[np.newaxis] for rows in rows_of(ids))
                told["length"] = handle.append(*rows, timeout=PATIENCE)
            except AbortedError:
                told["code"] = "ABORTED"
            self._note("append", begin, **told)

        return append

    def reader(self):
        """What one of several threads calls; with a handle of its own."""
        handle = self._cluster.open_sequence(self.sequence.name)

        def read():
            begin = time.monotonic_ns()
            handle.describe()
            self._note("attend", begin, **self._ask(handle))

        return read

    def fork(self):
        """What a fork has is what the sequence had at some moment of it."""
        handle = self._cluster.open_sequence(self.sequence.name)
        begin = time.monotonic_ns()
        try:
            made = handle.fork()
        except UnavailableError:
            return  # the map was at the node that was killed
        with made as fork:
            self._note("attend", begin, **self._ask(fork))

    def check(self):
        """The last reader sees all; then every answer must fit some order."""
        self.reader()()
        contents = Contents()
        dead = check(contents, self._operations, Contents.EMPTY)
        if dead is not None:
            shown = "\n".join(str(one) for one in [*dead.done[-5:], *dead.next[:5]])
            raise AssertionError(f"no order gives these answers; around\n{shown}")
        return len(self._operations)

    @staticmethod
    def _ask(sequence, append=None, position=None, timeout=PATIENCE):
        """The output, and how many keys it was of: zeros as a query tell by the lse."""
        answer = sequence.attend(
            KIND.queries[np.newaxis],
            append=append,
            position=position,
            scale=1,
            lse=True,
            timeout=timeout,
        )
        count = np.exp(answer.lse[0, -1].astype(np.float64))
        return {"output": answer.output[0], "read": round(float(count))}

    def _note(self, kind, begin, *, code="OK", end=None, keys=(), **told):
        end = end or time.monotonic_ns()
        position = told.pop("position", None)
        # What goes over the end of a range is an append for each; the last one answers.
        made = []
        for part in self.sequence._map.ranges if keys else ():
            if position < part.end < position + len(keys):
                taken = part.end - position
                made.append(
                    Operation(
                        "append",
                        begin,
                        end,
                        code,
                        keys=keys[:taken],
                        position=position,
                    )
                )
                keys, position = keys[taken:], part.end
        made.append(
            Operation(kind, begin, end, code, keys=keys, position=position, **told)
        )
        if code == "ABORTED":
            made = made[:1]  # those behind it were not begun
        with self._lock:
            self._operations += made
