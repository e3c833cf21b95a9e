"""What benchmarks/compare writes into the documentation."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks" / "python"
MACHINE = {"processor": "Intel(R) Xeon(R) Processor", "instruction_set": "AVX3"}


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield lambda name: importlib.import_module(f"compare.{name}")
    for name in [name for name in sys.modules if name.split(".")[0] == "compare"]:
        del sys.modules[name]


@pytest.fixture
def report(compare):
    return compare("report")


def test_a_machine_has_a_page_that_its_next_run_replaces(report, tmp_path):
    page = report.write_machine_page(tmp_path / "peers", MACHINE, "first run\n")
    assert page == report.write_machine_page(
        tmp_path / "peers", MACHINE, "second run\n"
    )
    assert page.name == "intel-xeon-processor-avx3.md"
    text = page.read_text()
    assert text.startswith("# Intel(R) Xeon(R) Processor, AVX3\n")
    assert "second run" in text and "first run" not in text


def test_a_summary_stays_between_its_lines(report, tmp_path):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_summary(page, "new\n")
    assert page.read_text() == (
        f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
    )


def test_a_file_without_such_lines_becomes_the_summary(report, tmp_path):
    page = tmp_path / "summary.md"
    page.write_text("something else\n")
    report.write_summary(page, "new\n")
    assert page.read_text() == "new\n"


def test_what_a_ratio_is_stands_between_a_title_and_its_table(report):
    table = report.targets_table([])
    for text in (table.text(), table.markdown()):
        before, note, rows = text.partition("medians of the rounds' own")
        assert "best peer" in before and "case" not in before
        assert note and "case" in rows


def test_fp16_is_judged_by_what_amx_can_do_where_there_is_amx(compare):
    [case] = [c for c in compare("cases").CASES if c.key == "l1024-d64-fp16"]
    goals = {
        name: [(goal.kind, goal.on(name).value) for goal in case.targets]
        for name in ("AVX3_AMX", "AVX3_BF16", "AVX3")
    }
    assert goals["AVX3_AMX"] == [("peer", 2.2), ("own", 1.8)]
    assert goals["AVX3_BF16"] == goals["AVX3"] == [("peer", 1.3), ("own", 1.0)]


def test_two_threads_that_wait_for_memory_are_held_against_its_rate(compare):
    cases = [c for c in compare("cases").TWO_THREADS if c.bound == "memory"]
    assert cases
    for case in cases:
        assert [goal.value for goal in case.targets if goal.kind == "read"] == [0.9]
