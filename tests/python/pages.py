"""The code of docs/python.md, for tests to run."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/python.md").read_text(encoding="utf-8")


def blocks(language, *headings):
    """The blocks of a language below these headings, one after the other."""
    sections = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
    found = []
    for heading in headings:
        code = re.findall(rf"```{language}\n(.*?)```", sections[heading], re.DOTALL)
        assert code, f"no {language} below {heading}"
        found += code
    return "\n".join(found)
