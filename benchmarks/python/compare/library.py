"""A peer's library in a process of its own, which may crash without harm to the run."""

import functools
import multiprocessing
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass

from compare.case import Case
from compare.measure import CannotDo, Crashed

# For oneDNN, which PyTorch and OpenVINO multiply with: some virtual machines report AMX
# to programs and then trap on what oneDNN does with it.
WITHOUT_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
BENCHMARKS = pathlib.Path(__file__).resolve().parents[1]
PATIENCE = 300  # seconds that an answer may take, compilation included


class Library:
    """Starts the process when it is first needed, and again after a crash. `python` is
    the interpreter of the environment that has the library: this one where it is left
    out. `environment` is added to this process's."""

    def __init__(
        self,
        module_name: str,
        threads: int,
        environment: dict[str, str] | None = None,
        python: pathlib.Path | None = None,
    ):
        self.module_name = module_name
        self.threads = threads
        self.environment = environment or {}
        self.python = python or sys.executable
        self.process = None
        self.connection = None
        self.made: dict[str, tuple] = {}  # what to make again after a crash

    def start(self) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        with theirs:
            descriptor = theirs.fileno()
            words = [self.module_name, str(self.threads), str(descriptor)]
            self.process = subprocess.Popen(
                [self.python, "-m", "compare.library_process", *words],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": str(BENCHMARKS)} | self.environment,
                pass_fds=[descriptor],
            )
        for arguments in self.made.values():
            self.ask("make", *arguments)

    def ask(self, command: str, *arguments):
        if self.process is None:
            self.start()
        try:
            # Where the process has ended since its last answer, this fails already.
            self.connection.send((command, *arguments))
            if not self.connection.poll(PATIENCE):
                self.end()
                raise CannotDo(f"fails: gives no answer within {PATIENCE} s")
            worked, answer = self.connection.recv()
        except (EOFError, ConnectionError):
            raise Crashed.of(self.end()) from None
        if not worked:
            raise CannotDo(answer)
        return answer

    def end(self) -> int:
        """Ends the process, where it has not done so itself. Returns its exit code."""
        self.connection.close()
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process = None
        return code

    @functools.cached_property
    def without_amx(self) -> "Library":
        """The same library kept from the processor's tiles; starts when needed."""
        environment = self.environment | WITHOUT_AMX
        return Library(self.module_name, self.threads, environment, self.python)

    def offers(self, case: Case) -> list[str]:
        return self.ask("offers", case)

    def make(self, name: str, case: Case, folder: pathlib.Path) -> "RemotePeer":
        """Raises CannotDo with the reason, a wrong result and a crash included."""
        self.ask("make", name, case, folder)
        self.made[name] = (name, case, folder)
        return RemotePeer(name, name, self)

    def forget(self) -> None:
        """Lets go of all peers and their memory."""
        self.made.clear()
        if self.process is not None:
            self.ask("forget")

    def close(self) -> None:
        if self.process is not None:
            self.end()
        if "without_amx" in self.__dict__:
            self.without_amx.close()


@dataclass
class RemotePeer:
    """A peer in its library's process."""

    name: str
    offered_as: str
    library: Library

    def measure(self, seconds: float) -> float:
        try:
            return self.library.ask("measure", self.offered_as, seconds)
        except CannotDo:
            self.library.made.pop(self.offered_as, None)
            raise

    def close(self) -> None:
        pass
