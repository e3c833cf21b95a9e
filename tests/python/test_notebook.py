"""The notebook: it runs from its first cell to its last, and draws."""

from notebook import Notebook, committed_outputs


def test_it_runs_and_says_what_it_leaves_out():
    book = Notebook()
    assert book.pictures == 11
    assert "output  [[20.]]" in book.text
    assert "question 5: 2004 keys, 0e+00 from keys sent" in book.text
    assert "largest difference from float64" in book.text
    assert "SKIPPED, because these packages are not installed: torch" in book.text


def test_it_is_kept_without_outputs():
    # They would change with every run, and outweigh the text.
    assert committed_outputs() == []
