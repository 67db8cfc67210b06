"""Run docs/quickstart.ipynb, and store its outputs there or in a file: `python docs/quickstart.py [FILE]`.

It runs in a kernel of its own and an empty folder. Progress, which differs each time, is not stored.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_suffix(".ipynb")


def main(out: Path) -> None:
    """Run the notebook, and write it with its outputs to a file."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=600, record_timing=False, resources=resources).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else NOTEBOOK)
