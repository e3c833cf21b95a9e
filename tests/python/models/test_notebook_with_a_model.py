"""The notebook where PyTorch and a model are installed: nothing is left out."""

import re

from notebook import Notebook


def test_the_model_is_run():
    book = Notebook()
    assert book.pictures == 12
    assert "SKIPPED" not in book.text
    difference = re.search(r"largest difference: (\S+)", book.text)
    assert float(difference[1]) < 1e-5
