"""Runs a script of benchmarks/ as a test: that it measures, not how fast."""

import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def rows_of(script, *arguments, timeout):
    """The rows of the table that it prints, measured in one round."""
    binaries = Path(os.environ["ATTENTION_SERVER_BINARY"]).parent
    ran = subprocess.run(
        [sys.executable, BENCHMARKS / script, "--binaries", binaries]
        + ["--rounds", "1", *arguments],
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS / "python")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=timeout,
    )
    return ran.stdout.splitlines()[2:]
