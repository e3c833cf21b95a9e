"""Of what a simulated step consists, by costs that are easy to add up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sharded import apart
from sharded.parts import LINK, breakdown, takes_over

COSTS = {
    "key": 1e-6,
    "merge": 1e-5,
    "send": 1e-4,
    "call": 3e-4,
    "relay": 1e-4,
    "entry": 0,
    "sent_entry": 0,
}


def test_one_servers_parts_are_the_whole_step():
    whole, parts = breakdown([[1000]], COSTS)
    assert sum(parts.values()) == pytest.approx(whole)
    assert parts["kernel"] == pytest.approx(1e-3)
    assert parts["call"] == pytest.approx(4e-4)
    assert parts["merge"] == pytest.approx(1e-5)
    assert parts["link"] == pytest.approx(LINK[0], rel=0.2)  # and the bytes' time


def test_many_servers_ask_each_other_as_the_product_does():
    _, parts = breakdown([[1000]] * 64, COSTS)
    # The client sends to four, each of which asks fifteen.
    assert parts["kernel"] == pytest.approx(1e-3)
    assert 15e-4 < parts["merge"] < 16e-4


def test_servers_without_keys_are_not_asked():
    assert breakdown([[1000], *[[]] * 63], COSTS) == breakdown([[1000]], COSTS)


@pytest.mark.parametrize("nodes", [1, 8])
def test_the_kernel_takes_over_where_keys_take_longer_than_a_call(nodes):
    # Few keys are at one server, however many there are.
    assert takes_over(nodes, COSTS) == 512


def test_steps_over_nodes_apart_are_measured_and_nothing_of_them_stays():
    if lacks := apart.missing():
        pytest.skip(f"needs {lacks}")
    wanted = "--apart 0.3:1 --check 1000 --rounds 1 --seconds 0.02 --keys 1024"
    program = ["unshare", "--net", "--mount", sys.executable, "-m", "sharded"]
    done = subprocess.run(
        [*program, *wanted.split()],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "each node has 0.3, and 1 Gbit/s" in done.stdout
    assert "| 4, a tree | " in done.stdout
    assert not list(Path("/sys/fs/cgroup").glob("**/attention-sharded-*"))
