import os
import subprocess
from pathlib import Path

from benchmark_script import rows_of


def test_it_measures_every_kind_of_call():
    rows = rows_of("python_client.py", "--seconds", "0.02", timeout=240)
    assert [row.count(" us |") for row in rows] == [2, 3, 2, 3, 2]


def test_it_measures_a_call_in_process_beside_one_in_cpp():
    rows = rows_of(
        "python_engine.py", "--rounds", "1", "--seconds", "0.02", timeout=120
    )
    assert [row.count(" us |") for row in rows] == [3, 3, 3]


def test_it_measures_steps_of_decoding_wherever_keys_are():
    cases = ["--cases", "1x64,3x100", "--seconds", "0.02"]
    rows = rows_of("python/resident/__main__.py", *cases, timeout=240)
    assert [row.count(" ms |") for row in rows] == [4, 4]


def flags_of_large_memory(process):
    """Of what the process has mapped in pieces of 1 GiB or more (proc(5))."""
    large, flags = False, []
    for line in Path(f"/proc/{process.pid}/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "Size":
            large = int(value.split()[0]) >= 1 << 20
        elif name == "VmFlags" and large:
            flags.append(value.split())
    return flags


def test_the_rate_of_reading_is_measured_in_memory_that_is_had_as_inputs_are():
    program = Path(os.environ["ATTENTION_SERVER_BINARY"]).with_name(
        "attention-benchmark"
    )
    with subprocess.Popen(
        [program, "--query-length", "4", "--serve-rounds"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdin.write("limits 0.01\n")
        process.stdin.flush()
        assert "pairs" in process.stdout.readline()
        assert "read" in process.stdout.readline()
        flags = flags_of_large_memory(process)
        process.stdin.close()
    # Huge pages, if the system has them.
    assert [of for of in flags if "hg" in of]
