"""The programs that came with this package: the server, and one to call it with."""

import os
import sys
from pathlib import Path


def path(program: str = "attention-server") -> Path:
    """Where it is, or attention-client."""
    return Path(__file__).with_name("bin") / program


def main() -> None:
    """Becomes the server, with this process's arguments."""
    _become("attention-server")


def client() -> None:
    """Becomes attention-client, with this process's arguments."""
    _become("attention-client")


def _become(program: str) -> None:
    os.execv(path(program), [program, *sys.argv[1:]])
