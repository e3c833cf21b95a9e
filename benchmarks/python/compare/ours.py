"""Our core, through attention-benchmark --serve-rounds."""

import contextlib
import json
import pathlib
import subprocess

import numpy as np

from compare.case import Case
from compare.measure import CannotDo, Crashed
from compare.tensors import read_safetensors


class Ours:
    """A running attention-benchmark. `tensors` are the case's inputs by their names,
    which the peers are given too, with what it computed from them: those that it
    saved, where `save` says to which file."""

    def __init__(
        self,
        name: str,
        binary: pathlib.Path,
        case: Case,
        threads: int,
        save: pathlib.Path | None = None,
    ):
        self.name = name
        flags = ["--serve-rounds", *case.flags(threads)]
        if save:
            flags += ["--save", str(save)]
        self.process = subprocess.Popen(
            [binary, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.about = self.answer()
        self.tensors: dict[str, np.ndarray] = read_safetensors(save) if save else {}

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            reason = self.process.stderr.read().strip()
            if reason:
                raise CannotDo(reason)
            raise Crashed.of(self.process.wait())
        return json.loads(line)

    def ask(self, command: str, seconds: float) -> dict:
        # One that has ended, perhaps for want of memory, gives no answer either.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{command} {seconds}\n")
            self.process.stdin.flush()
        return self.answer()

    def results(self) -> dict[str, np.ndarray]:
        return {n: self.tensors[n] for n in ("output", "weights") if n in self.tensors}

    def measure(self, seconds: float) -> float:
        return self.ask("attend", seconds)["seconds"]

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


class Limits:
    """The machine's limits, measured between the rounds of every case."""

    def __init__(self, binary: pathlib.Path, threads: int):
        tiny = Case("", "", query_heads=1, query_length=1)
        self.benchmark = Ours("limits", binary, tiny, threads)

    def measure(self, seconds: float) -> dict:
        """`flops` and `read` (bytes) per second, and their `instruction_set`."""
        return self.benchmark.ask("limits", seconds)

    def close(self) -> None:
        self.benchmark.close()


def peak_memory(binary: pathlib.Path, case: Case, threads: int) -> dict:
    """Bytes beyond inputs and outputs, of a process of its own, and `limit`, those that
    are wanted at most."""
    done = subprocess.run(
        [binary, "--peak-memory", *case.flags(threads)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout) | {"limit": case.memory_limit(threads)}
