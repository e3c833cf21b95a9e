"""A peer's library in a process of its own, which may crash without harm to the run."""

import functools
import importlib
import multiprocessing
import os
import pathlib
import pickle
import signal
from dataclasses import dataclass

from peers.cases import Case
from peers.expected import Expected
from peers.measure import CannotDo, Crashed
from peers.tensors import read_safetensors

# OpenVINO says first where in its source it found out.
NOT_TELLING = (" failed at ", "Exception from", "While validating node")
# For oneDNN, which PyTorch and OpenVINO multiply with: some virtual machines report AMX
# to programs and then trap on what oneDNN does with it.
WITHOUT_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
PATIENCE = 300  # seconds that an answer may take, compilation included


def reason_of(error: Exception) -> str:
    """The first line that says something, cut to fit into a table."""
    if isinstance(error, CannotDo):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [
        line for line in lines if not any(words in line for words in NOT_TELLING)
    ]
    text = (telling or lines or [type(error).__name__])[0]
    return "fails: " + (text if len(text) <= 120 else text[:117] + "...")


def serve(module_name: str, threads: int, environment: dict, connection) -> None:
    """The library's process: answers (command, ...) with (worked, answer)."""
    os.environ.update(environment)
    module = importlib.import_module(module_name)
    module.start(threads)
    peers = {}

    def offers(case: Case) -> list[str]:
        return list(module.offers(case))

    def make(name: str, case: Case, folder: pathlib.Path) -> None:
        """Makes the peer, and keeps it if it computes what it should."""
        tensors = read_safetensors(folder / "case.safetensors")
        expected: Expected = pickle.loads((folder / "expected").read_bytes())
        peer = module.offers(case)[name](case, tensors)
        if wrong := expected.error_in(peer.results()):
            raise CannotDo(wrong)
        peers[name] = peer

    def measure(name: str, seconds: float) -> float:
        return peers[name].measure(seconds)

    def forget() -> None:
        peers.clear()

    commands = {f.__name__: f for f in (offers, make, measure, forget)}
    while True:
        try:
            command, *rest = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer = (True, commands[command](*rest))
        except Exception as error:  # whatever it is, it is the peer's answer
            answer = (False, reason_of(error))
        connection.send(answer)


class Library:
    """Starts the process when it is first needed, and again after a crash."""

    def __init__(
        self, module_name: str, threads: int, environment: dict[str, str] | None = None
    ):
        self.module_name = module_name
        self.threads = threads
        self.environment = environment or {}
        self.process = None
        self.connection = None
        self.made: dict[str, tuple] = {}  # what to make again after a crash

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=serve,
            args=(self.module_name, self.threads, self.environment, theirs),
            daemon=True,
        )
        self.process.start()
        theirs.close()
        for arguments in self.made.values():
            self.ask("make", *arguments)

    def ask(self, command: str, *arguments):
        if self.process is None:
            self.start()
        self.connection.send((command, *arguments))
        if not self.connection.poll(PATIENCE):
            self.end()
            raise CannotDo(f"fails: gives no answer within {PATIENCE} s")
        try:
            worked, answer = self.connection.recv()
        except (EOFError, ConnectionError):
            code = self.end()
            what = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise Crashed(f"crashes: {what}") from None
        if not worked:
            raise CannotDo(answer)
        return answer

    def end(self) -> int:
        """Ends the process, where it has not done so itself. Returns its exit code."""
        self.connection.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        self.process = None
        return code

    @functools.cached_property
    def without_amx(self) -> "Library":
        """The same library kept from the processor's tiles; starts when needed."""
        return Library(self.module_name, self.threads, WITHOUT_AMX)

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
