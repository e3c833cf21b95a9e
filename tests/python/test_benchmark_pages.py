"""What benchmarks/compare writes into the documentation."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks" / "python"
MACHINE = {"processor": "Intel(R) Xeon(R) Processor", "instruction_set": "AVX3"}


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("compare.report")
    for name in [name for name in sys.modules if name.split(".")[0] == "compare"]:
        del sys.modules[name]


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
