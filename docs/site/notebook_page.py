"""A MkDocs hook: a notebook of docs/ becomes a page of its name, with the outputs that it stores."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook."""
    for notebook in sorted(Path(config.docs_dir).glob("*.ipynb")):
        page = render(json.loads(notebook.read_text(encoding="utf-8")))
        files.append(File.generated(config, f"{notebook.stem}.md", content=page))
    return files


def render(notebook: Mapping[str, Any]) -> str:
    """Return a notebook as Markdown."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _cell(cell)) + "\n"


def _cell(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "text/html" in data:
            lines = "".join(data["text/html"]).split("\n")  # Markdown ends HTML at an empty line
            yield f'<div class="output">{" ".join(lines)}</div>'
        elif "image/png" in data:
            picture = "".join("".join(data["image/png"]).split())
            yield f'<div class="output"><img alt="" src="data:image/png;base64,{picture}"></div>'
        else:
            text = "".join(data.get("text/plain", output.get("text", ""))).rstrip()
            yield f'<pre class="output"><code>{html.escape(text, quote=False)}</code></pre>'
