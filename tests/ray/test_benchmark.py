"""benchmarks/sharded: that it measures, not how fast."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    folders = [ROOT / "tests/support/python", ROOT / "benchmarks/python"]
    return subprocess.run(
        [sys.executable, "-m", "sharded", "--rounds=1", "--seconds=0.01", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        timeout=300,
    )


def rows(ran):
    """Those that begin with a number of servers."""
    return re.findall(r"^\| (\d) \|", ran.stdout, re.MULTILINE)


def test_it_measures_what_a_step_takes_above_its_slowest_server():
    ran = run("--overhead")
    assert ran.returncode == 0, ran.stderr
    assert rows(ran) == ["2", "3", "4", "8"]


@pytest.mark.parametrize("percent", [-1, 1e9])
def test_a_simulation_that_differs_by_more_is_an_error(percent):
    ran = run("--keys=512", f"--check={percent}")
    assert rows(ran) == ["1", "2", "3", "4"]
    assert ran.returncode == (percent < 0)
    assert ("at most -1 %" in ran.stderr) == (percent < 0)


def test_costs_that_are_told_are_simulated_with_and_nothing_is_measured():
    names = ("key", "send", "call", "merge", "entry", "sent_entry", "relay")
    ran = run("--costs", *(f"{name}=1" for name in names))
    assert ran.returncode == 0, ran.stderr
    # A microsecond each, and 100 of the link.
    assert re.search(r"^\| 1 \| 1e\+06 \| 1000\.\d", ran.stdout, re.MULTILINE)
    assert "measured" not in ran.stdout
    assert run("--costs", "key=1").returncode == 2
