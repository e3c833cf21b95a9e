"""The benchmark runs; how fast is no matter here."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks/minilm.py"


def test_it_measures_every_way():
    binaries = Path(os.environ["ATTENTION_SERVER_BINARY"]).parent
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--binaries", binaries]
        + ["--rounds", "1", "--seconds", "0"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    rows = ran.stdout.splitlines()[2:]
    assert [row.count(" ms |") for row in rows] == [4] * 6
