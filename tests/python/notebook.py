"""docs/attention.ipynb, executed as Jupyter does it."""

import json

import nbclient
import nbformat
from pages import ROOT

PATH = ROOT / "docs/attention.ipynb"


def executed(settings=""):
    """The book, with what its cells have put out; settings: lines that run first."""
    book = nbformat.read(PATH, as_version=4)
    # Behind the first cell's %matplotlib inline, which would undo some.
    next(c for c in book.cells if c.cell_type == "code").source += "\n" + settings
    client = nbclient.NotebookClient(
        book,
        timeout=300,  # seconds of a cell
        kernel_name="python3",
        resources={"metadata": {"path": PATH.parent}},
    )
    client.execute()
    return book


class Notebook:
    """What its cells have put out."""

    def __init__(self):
        outputs = [
            output
            for cell in executed().cells
            if cell.cell_type == "code"
            for output in cell.outputs
        ]
        self.text = "".join(
            output.text for output in outputs if output.output_type == "stream"
        )
        self.pictures = sum("image/png" in o.get("data", {}) for o in outputs)


def committed_outputs():
    """What the file in the repository has of them."""
    cells = json.loads(PATH.read_text(encoding="utf-8"))["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]
