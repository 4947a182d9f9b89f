"""A hook of mkdocs: `<!-- gallery -->` becomes every picture of the package, with the line of Python that makes it.

The programs below run once per build, in a process of their own, and each picture is drawn by the first of them to
which it applies. A new picture is in the gallery without another line here, if it applies to one of these runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MARKER = "<!-- gallery -->"
SMALL = "width=420, height=260"
PROGRAMS = {
    "One input": """\
run = gpx.Spec("cholqr", {"num_inducing": 8}, data="snelson-like", kernel="se").open()
run.finish(steps=12)""",
    "Two inputs": """\
run = gpx.Spec("cholqr", {"num_inducing": 12}, data={"name": "sin-product", "n": 300, "d": 2}).open()
run.finish(steps=20)""",
    "Molecules": """\
smiles = [head + "C" * length + tail for head in ("O", "N") for length in (1, 2, 3, 4, 5) for tail in ("", "O", "C=O")]
weights = [float(len(text)) for text in smiles]
run = gpx.Spec("cholqr", {"num_inducing": 6}, kernel="molecules").open(data=(smiles, weights))
run.finish(steps=5)""",
    "The full GP": """\
run = gpx.Spec("gbcd", {"block": 20}, data={"name": "sin-product", "n": 300, "d": 2}).open()
run.finish(steps=12)""",
    "Eigenfunctions": """\
settings = {"num_eigenfunctions": 40, "grid_points": 8}
run = gpx.Spec("grief", settings, data={"name": "friedman1", "n": 200}).open()
run.finish(steps=12)""",
    "Eigenfunctions, sampled": """\
run = gpx.Spec("grief-mcmc", settings, data={"name": "friedman1", "n": 200}).open()
run.finish(steps=12)""",
    "Cross-validation": """\
run = gpx.Spec("gpcv-admm", {"folds": 3}, data="snelson-like", kernel="se").open()
run.finish(steps=12)""",
    "Minibatches": """\
run = gpx.Spec("scgd", {"width": 8, "batch_size": 16, "epochs": 10}, data={"name": "friedman1", "n": 200}).open()
run.finish(steps=12)""",
    "Neighbours": """\
run = gpx.Spec("vecchia", data={"name": "sin-product", "n": 300, "d": 2}, kernel="matern32").open()
run.finish(steps=12)""",
    "Neighbours, one input": """\
run = gpx.Spec("states", data="snelson-like", kernel="matern32").open()
run.finish(steps=12)""",
}  # heading -> the program that makes its run
OPTIONS = {"grief-growth": "largest=10_000", "stochastic-gradients": "draws=10"}  # key -> what makes a picture cheaper


class Drawn(NamedTuple):
    """A picture of the gallery.

    Attributes
    ----------
    heading : str
        Under which program it stands.
    key, title, help : str
        What the class of the picture says.
    line : str
        The line of Python that makes it.
    svg : str
        The picture.
    """

    heading: str
    key: str
    title: str
    help: str
    line: str
    svg: str


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs: one file per picture."""
    from mkdocs.structure.files import File

    for picture in written():
        files.append(File.generated(config, f"gallery/{picture.key}.svg", content=picture.svg))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page before it becomes HTML."""
    return markdown.replace(MARKER, gallery(written())) if MARKER in markdown else markdown


@cache
def written() -> tuple[Drawn, ...]:
    """The pictures, drawn in another process, so that mkdocs itself does not import the package."""
    done = subprocess.run([sys.executable, __file__], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"The gallery could not be drawn: {done.stderr.strip()}")
    return tuple(Drawn(*fields) for fields in json.loads(done.stdout))


def gallery(pictures: tuple[Drawn, ...]) -> str:
    """The gallery as Markdown: a program, and below it its pictures."""
    parts = []
    for heading, program in PROGRAMS.items():
        figures = "".join(figure(picture) for picture in pictures if picture.heading == heading)
        parts.append(
            f'### {heading}\n\n```python\n{program}\n```\n\n<div class="gallery" markdown="1">\n{figures}</div>\n'
        )
    return "\n".join(parts)


def figure(picture: Drawn) -> str:
    """One picture as Markdown: its drawing, its name, its line, and what to look for."""
    image = f"![{picture.title}](gallery/{picture.key}.svg){{ loading=lazy }}"
    return f'<div markdown="1">\n{image}\n\n**{picture.title}** `{picture.line}`\n\n{picture.help}\n</div>\n'


def runs() -> Iterator[tuple[str, dict[str, Any]]]:
    """The names that each program leaves, `run` among them, by its heading."""
    import gpexplorer as gpx

    names: dict[str, Any] = {"gpx": gpx}
    for heading, program in PROGRAMS.items():
        exec(program, names)
        yield heading, names


def drawn() -> list[Drawn]:
    """Run every program and draw each picture once, here."""
    from gpexplorer.views import for_run

    pictures: dict[str, Drawn] = {}
    for heading, names in runs():
        for view in for_run(names["run"]):
            if view.key in pictures:
                continue
            options = f", {OPTIONS[view.key]}" if view.key in OPTIONS else ""
            svg = eval(f'run.plot("{view.key}"{options}, {SMALL}).svg()', names)
            line = f'run.plot("{view.key}"{options})'
            pictures[view.key] = Drawn(heading, view.key, view.title, view.help, line, svg)
    return list(pictures.values())


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    print(json.dumps(drawn()))
