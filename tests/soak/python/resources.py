"""What a process holds, sampled, and whether it stays the same."""

import os
import statistics
from dataclasses import dataclass


@dataclass
class Sample:
    rss: float  # MiB
    descriptors: int
    threads: int


def sample(pid):
    """None where it has ended."""
    with open(f"/proc/{pid}/status") as status:
        fields = dict(line.split(":", 1) for line in status if ":" in line)
    if "VmRSS" not in fields:
        return None
    rss = int(fields["VmRSS"].split()[0]) / 1024
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return Sample(rss, descriptors, int(fields["Threads"]))


# By how much the median of the second half may be above that of the first: what
# chance makes of a minute. In an hour, 1 KiB that each call leaves behind is more.
MARGINS = {"rss": 32, "descriptors": 8, "threads": 8}
# The first part of a soak, in which pools and caches fill.
WARM_UP = 0.25


def medians(samples, name):
    """Of the first and of the second half after the warm-up."""
    values = [getattr(one, name) for one in samples[int(len(samples) * WARM_UP) :]]
    half = len(values) // 2
    return statistics.median(values[:half]), statistics.median(values[half:])


def growth(samples):
    """A line for each resource that is not flat."""
    lines = []
    for name, margin in MARGINS.items():
        first, second = medians(samples, name)
        if second > first + margin:
            lines.append(
                f"{name}: {first} at first, {second} later (+{margin} allowed)"
            )
    return lines
