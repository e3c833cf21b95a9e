"""Progress, for whoever waits."""

import sys
import time

_start = time.monotonic()


def say(words: str, end: str = "\n") -> None:
    """Progress, with the seconds since the run began."""
    print(
        f"[{time.monotonic() - _start:4.0f}s] {words}",
        end=end,
        file=sys.stderr,
        flush=True,
    )
