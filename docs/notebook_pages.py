"""A hook of mkdocs: the saved notebooks become pages, with the pictures and answers that they keep; none is run.

nbconvert writes each notebook as Markdown, so that its text is searched, its code is coloured and its headings are in
the table of contents like those of every other page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs: a page per notebook, and its pictures."""
    from mkdocs.structure.files import File

    for path in NOTEBOOKS:
        text, pictures = page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    return files


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    """The text of a saved notebook as Markdown, and its pictures by name."""
    from nbconvert import MarkdownExporter

    text, resources = MarkdownExporter().from_filename(
        str(path), resources={"unique_key": path.stem, "output_files_dir": "."}
    )
    pictures = {Path(name).name: content for name, content in resources["outputs"].items()}
    text = re.sub(r"!\[svg\]\((?:\./)?([^)]+)\)", r"![What this cell shows](\1)", text)
    text = text.replace("<details>", '<details markdown="1">')  # so that the text inside is Markdown, too
    kept = f"`notebooks/{path.name}` with the answers that it keeps. [How to run it](../in-a-notebook.md).\n"
    title, _, body = text.strip().partition("\n")
    return f"{title}\n\n{kept}\n{body}\n", pictures
