"""What clients did, in files that a killed one leaves complete but for its last entry."""

import itertools
import os
import pickle
import struct
import time

_HEAD = struct.Struct("<I")


class Recorder:
    """Of one process. An entry is there as soon as it is written, whatever becomes of
    the process; calls of several threads may overlap."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = itertools.count()

    def begin(self, calls):
        """Before a call; a number for end(). `calls` says what it may do."""
        number = next(self._numbers)
        self._write(("begin", number, time.monotonic_ns(), calls))
        return number

    def end(self, number, answer, now=None):
        self._write(("end", number, now or time.monotonic_ns(), answer))

    def problem(self, text):
        """What must not happen, whatever the order."""
        self._write(("problem", 0, 0, text))

    def _write(self, entry):
        data = pickle.dumps(entry)
        os.write(self._file, _HEAD.pack(len(data)) + data)


def read(path):
    """(calls, begin, end or None, answer or None) of each call, and problems."""
    data = path.read_bytes()
    calls, problems = {}, []
    at = 0
    while at + _HEAD.size <= len(data):
        (length,) = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if at + length > len(data):
            break  # it was killed here
        kind, number, moment, what = pickle.loads(data[at : at + length])
        at += length
        if kind == "begin":
            calls[number] = (what, moment, None, None)
        elif kind == "end":
            begun, begin, _, _ = calls[number]
            calls[number] = (begun, begin, moment, what)
        else:
            problems.append(what)
    return list(calls.values()), problems
