"""What is measured of a server that has too much to do."""

import dataclasses
import subprocess
from pathlib import Path

from compare.progress import say
from serve.processes import Server, load

# Some 200 KiB that take a worker tens of milliseconds: what is refused costs
# the transport little beside what is served.
REQUEST = ["--shape", "1,1,1024,8", "--additive", "1024"]
SMALL = ["--shape", "1,2,64,64"]
# Several seconds of both workers.
LARGE = ["--shape", "1,1,65536,16"]
DEADLINE = 1.0  # seconds


@dataclasses.dataclass
class Load:
    factor: float  # of the best rate
    goodput: float  # answered in time, of the best rate
    p50_ms: float
    p99_ms: float
    codes: dict[str, int]
    memory_mib: float


@dataclasses.dataclass
class Beside:
    name: str
    p50_ms: float
    p99_ms: float
    answered: int
    errors: int


@dataclasses.dataclass
class Measured:
    server: str
    loads: list[Load]
    beside: list[Beside]

    def as_json(self) -> dict:
        return dataclasses.asdict(self)


def goodput(
    binaries: Path, server: Server, factors: list[float], seconds: float
) -> list[Load]:
    def run(*flags: str) -> dict:
        return load(binaries, ["attend", "--server", server.tcp, *REQUEST, *flags], seconds)

    run("--in-flight", "4")  # the server learns what a request takes
    best = run("--in-flight", "4")["calls_per_second"]
    say(f"best rate: {best:.1f} calls/s, 4 at a time")
    loads = []
    for factor in factors:
        rate = best * factor
        result = run(
            *["--rate", f"{rate:.3f}", "--timeout", str(DEADLINE), "--warm-up", "2"],
            *["--in-flight", str(int(rate * DEADLINE * 1.2) + 16)],
        )
        loads.append(
            Load(
                factor,
                result["calls_per_second"] / best,
                result["latency_us"]["p50"] / 1000,
                result["latency_us"]["p99"] / 1000,
                result["errors_by_code"],
                server.resident_bytes() / 2**20,
            )
        )
        say(f"{factor:g} times the best rate: goodput {loads[-1].goodput:.2f}")
    return loads


def small_beside_large(binaries: Path, server: Server, seconds: float) -> list[Beside]:
    def small(name: str) -> Beside:
        # By the end of the warm-up, the large ones have arrived.
        flags = ["attend", "--server", server.tcp, *SMALL, "--rate", "50", "--in-flight", "64"]
        flags += ["--warm-up", "3"]
        result = load(binaries, flags, seconds)
        times = result["latency_us"]
        say(f"small requests, {name}: p99 {times['p99'] / 1000:.2f} ms")
        return Beside(
            name, times["p50"] / 1000, times["p99"] / 1000, result["calls"], result["errors"]
        )

    alone = small("alone")
    large = subprocess.Popen(
        [
            *[str(binaries / "attention-load"), "attend", "--server", server.tcp, *LARGE],
            *["--in-flight", "8", "--seconds", "600"],
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return [alone, small("beside 8 large ones at a time")]
    finally:
        large.kill()
        large.wait()
