"""What a soak counts, from many threads."""

import threading
from collections import Counter


class Tally:
    def __init__(self):
        self._lock = threading.Lock()
        self.codes = Counter()  # (what was done, code)
        self.checked = 0
        self.wrong = 0
        self.farthest = 0.0  # of good answers, in tolerances
        self.problems = []  # what must not happen; the first of it

    def count(self, name, code, allowed, details):
        with self._lock:
            self.codes[name, code] += 1
        self.note(code in allowed, f"{name}: {code}: {details}")

    def check(self, farthest, problem):
        """An answer that is `farthest` tolerances off."""
        with self._lock:
            self.checked += 1
            self.wrong += farthest > 1
            if farthest <= 1:
                self.farthest = max(self.farthest, farthest)
        self.note(farthest <= 1, f"{farthest} tolerances off: {describe(problem)}")

    def note(self, good, what):
        if not good:
            with self._lock:
                self.problems.append(what)
            # At once: a soak may take an hour, or be broken off.
            print(f"problem: {what[:500]}", flush=True)

    def line(self):
        with self._lock:
            return (
                f"{self.codes.total()} calls, {self.checked} answers checked, "
                f"{self.wrong} wrong, {len(self.problems)} problems"
            )

    def table(self):
        """Counts by what was done and by code."""
        with self._lock:
            codes = sorted({code for _, code in self.codes})
            names = sorted({name for name, _ in self.codes})
            lines = ["".join([f"{'':20}", *[f"{code:>20}" for code in codes]])]
            for name in names:
                counts = [f"{self.codes[name, code]:20}" for code in codes]
                lines.append(f"{name:20}" + "".join(counts))
        return "\n".join(lines)


def describe(problem):
    if isinstance(problem, str):
        return problem
    attention = problem.attention
    shapes = [t.shape for t in (attention.query, attention.key, attention.value)]
    return (
        f"--problem {problem.seed}: {problem.datatype} {attention.scoring} {shapes} "
        f"{attention.options} {sorted(attention.masks)}"
    )
