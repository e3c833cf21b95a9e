"""The benchmark runs; how fast is no matter here."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/python_client.py"


def test_it_measures_every_kind_of_call():
    binaries = Path(os.environ["ATTENTION_SERVER_BINARY"]).parent
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--binaries", binaries]
        + ["--rounds", "1", "--seconds", "0.02"],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    rows = ran.stdout.splitlines()[2:]
    figures = [row.count(" us |") for row in rows]
    assert figures == [2, 3, 2, 3, 2]
