"""The server's program, which came with this package."""

import os
import sys
from pathlib import Path


def path() -> Path:
    """Where it is."""
    return Path(__file__).with_name("bin") / "attention-server"


def main() -> None:
    """Becomes the server, with this process's arguments."""
    os.execv(path(), ["attention-server", *sys.argv[1:]])
