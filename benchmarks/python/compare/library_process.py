"""What runs in a library's process: python -m compare.library_process MODULE THREADS
DESCRIPTOR, where the last is an open connection to compare.library."""

import importlib
import pathlib
import pickle
import sys
from multiprocessing.connection import Connection

from compare.case import Case
from compare.expected import Expected
from compare.measure import CannotDo
from compare.tensors import read_safetensors

# OpenVINO says first where in its source it found out.
NOT_TELLING = (" failed at ", "Exception from", "While validating node")


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


def serve(module_name: str, threads: int, connection: Connection) -> None:
    """Answers (command, ...) with (worked, answer)."""
    module = importlib.import_module(module_name)
    module.start(threads)
    peers, tensors = {}, {}

    def offers(case: Case) -> list[str]:
        return list(module.offers(case))

    def make(name: str, case: Case, folder: pathlib.Path) -> None:
        """Makes the peer, and keeps it if it computes what it should."""
        if folder not in tensors:  # the peers of a case share its inputs
            tensors.clear()
            tensors[folder] = read_safetensors(folder / "case.safetensors")
        expected: Expected = pickle.loads((folder / "expected").read_bytes())
        peer = module.offers(case)[name](case, tensors[folder])
        if wrong := expected.error_in(peer.results()):
            raise CannotDo(wrong)
        peers[name] = peer

    def measure(name: str, seconds: float) -> float:
        return peers[name].measure(seconds)

    def forget() -> None:
        peers.clear()
        tensors.clear()

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


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), Connection(int(sys.argv[3])))
