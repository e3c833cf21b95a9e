"""The README's code, for tests to run."""

import re
from pathlib import Path

_TEXT = (Path(__file__).resolve().parents[3] / "README.md").read_text(encoding="utf-8")


def block(language, words):
    """The one block of a language that has these words."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", _TEXT, re.DOTALL | re.MULTILINE)
    with_words = [code for code in found if words in code]
    assert len(with_words) == 1, f"{len(with_words)} blocks with {words} (expected 1)"
    return with_words[0]
