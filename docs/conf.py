"""The site: Sphinx with MyST, which reads the Markdown that GitHub shows as well. `make docs` builds it.

Docstrings are plain text with Markdown's backticks; `plain_docstring` makes them reStructuredText. Notebooks are turned
into Markdown, with the outputs that they hold; nothing is executed here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx

import scorefield

project = "scorefield"
author = "The scorefield authors"
copyright = author  # noqa: A001  # Sphinx's name
version = release = scorefield.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown", ".ipynb": "notebook"}
exclude_patterns = ["results/*/remarks.md", "results/inpainting.md"]
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 4
default_role = "code"

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
add_module_names = False
python_maximum_signature_line_length = 90

html_theme = "furo"
html_title = "scorefield"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#b5401f", "color-brand-content": "#b5401f"},
    "dark_css_variables": {"color-brand-primary": "#f0855f", "color-brand-content": "#f0855f"},
}
html_static_path: list[str] = []
html_show_sphinx = False


def plain_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape what reStructuredText would take for markup, and make indented lines literal blocks."""
    result: list[str] = []
    literal = False
    for line in lines:
        indented = line.startswith("    ") and line.strip()
        if indented and not literal and (not result or not result[-1].strip() or literal):
            result += ["::", ""]
            literal = True
        elif line.strip() and not indented:
            literal = False
        result.append(line if literal and indented else _escaped(line))
    lines[:] = result


def plain_signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """A dataclass's defaults that are made by functions, which are no Python as they are printed, as three dots."""
    return signature and signature.replace("<factory>", "..."), returns


def _escaped(line: str) -> str:
    """The line with \\ before *, | and a final _, except within backticks."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"([*|\\]|_\b)", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


class NotebookParser(MystParser):  # type: ignore[misc]  # its types are not looked at
    """A notebook as a page: its text, its code, and the outputs that it was stored with."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        super().parse("\n\n".join(map(_cell, json.loads(inputstring)["cells"])), document)


def _cell(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return text
    return "\n\n".join([f"```python\n{text}\n```", *filter(None, map(_output, cell["outputs"]))])


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f"![output](data:image/png;base64,{''.join(''.join(data['image/png']).split())})"
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```" if text and output.get("name") != "stderr" else ""


def setup(app: Sphinx) -> None:
    assert Path(str(app.srcdir)).name == "docs"
    app.add_source_parser(NotebookParser)
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("autodoc-process-signature", plain_signature)
