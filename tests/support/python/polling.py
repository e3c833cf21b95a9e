"""Waiting for what nothing tells of: a process that changes, a server's figures."""

import time


def wait_until(holds, what, seconds=60):
    """Asks again and again whether it holds; an AssertionError with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.02)
