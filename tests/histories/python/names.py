"""The sequences that all clients share, by their names."""

import os

from contents import KINDS

# Names that everybody makes and deletes, with their layers.
FIXED = {"one": 1, "other": 1, "two-layers": 2, "int8-one": 1, "fp8-one": 1}
# Which names are of sequences that are stored otherwise than in FP32: places in KINDS.
SCALED = {"int8-": 1, "fp8-": 2}
# Places for names of forks, which the server makes.
PLACES = 3


def kind_number(name):
    return next((n for start, n in SCALED.items() if name.startswith(start)), 0)


def kind_of(name):
    return KINDS[kind_number(name)]


class Places:
    """Where clients leave the names of forks for each other. A file for each."""

    def __init__(self, folder):
        self._folder = folder

    def names(self):
        """With their layers."""
        found = {}
        for place in range(PLACES):
            try:
                name, layers = (self._folder / f"place{place}").read_text().split()
            except FileNotFoundError:
                continue
            found[name] = int(layers)
        return found

    def put(self, place, name, layers):
        """The name that was there before, or None."""
        path = self._folder / f"place{place}"
        before = path.read_text().split()[0] if path.exists() else None
        mine = self._folder / f"new-{os.getpid()}"
        mine.write_text(f"{name} {layers}")
        mine.rename(path)
        return before
