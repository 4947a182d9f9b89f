"""The parts of the site that are made from other files: notebooks, the gallery of pictures, and typeset formulas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from docs import equations, gallery, notebook_pages, story_pages
from gpexplorer.views.base import registry
from notebook_pictures import read

ROOT = Path(__file__).resolve().parents[2]
FORMULAS = re.compile(r"\$\$(.+?)\$\$|(?<![\\$`\w])\$(?! )([^$`\n]+?)(?<! )\$(?![\w$])", flags=re.S)
OWN = "gpexplorer."  # tests register pictures of their own


@pytest.mark.parametrize("path", notebook_pages.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_becomes_a_page_with_its_pictures_and_no_process(path: Path) -> None:
    text, pictures = notebook_pages.page(path)

    named = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert text.startswith("# ")
    assert named
    assert sorted(named) == sorted(pictures)
    assert all(picture.lstrip().startswith(b"<svg") for picture in pictures.values())
    assert "<details>" not in text
    cells = read(path).cells
    programs = [cell.source for cell in cells if cell.cell_type == "code"]
    assert all(f"```python\n{program}\n```" in text for program in programs)


def test_the_site_has_its_hooks_and_the_page_of_pictures_its_marker() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))

    hooks = [Path(hook).stem for hook in config["hooks"]]
    assert sorted(hooks) == ["catalogue_hook", "equations", "gallery", "notebook_pages", "story_pages"]
    assert max(map(hooks.index, ("gallery", "story_pages"))) < hooks.index("catalogue_hook")  # it refuses a marker
    assert gallery.MARKER in (ROOT / "docs" / "pictures.md").read_text("utf-8")
    assert story_pages.MARKER in (ROOT / "docs" / "stories.md").read_text("utf-8")


def test_every_picture_is_in_the_gallery() -> None:
    from gpexplorer.views import for_run

    applies = {view.key for _, names in gallery.runs() for view in for_run(names["run"])}

    assert {key for key, kind in registry.items() if kind.__module__.startswith(OWN)} <= applies
    assert set(gallery.OPTIONS) <= applies


def test_the_gallery_shows_a_picture_under_the_line_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "PROGRAMS", {"One input": gallery.PROGRAMS["One input"]})
    pictures = {picture.key: picture for picture in gallery.drawn()}

    page = gallery.gallery(tuple(pictures.values()))

    assert pictures["landscape"].svg.startswith("<svg")
    assert pictures["landscape"].line == 'run.plot("landscape")'
    image = "![Swap landscape](gallery/landscape.svg)"
    assert page.index('data="snelson-like"') < page.index(image) < page.index('`run.plot("landscape")`')


def test_a_story_is_a_page_with_its_pictures_its_folded_answer_and_a_run_that_plays() -> None:
    from gpexplorer.ui.stories import STORIES

    part = STORIES["swaps"].parts[0]
    part = part._replace(
        link=part.link.replace("at=10", "at=2"), shown=part.shown.replace("at=30", "at=3"), beside=("method=ml",)
    )

    [written] = story_pages.told([STORIES["swaps"]._replace(parts=(part,))])

    named = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", written.page)
    assert sorted(named) == sorted(written.pictures)
    assert {f"swaps-1-{of}-{key}.svg" for of in ("part", "answer") for key in ("fit", "landscape")} == set(named)
    assert all(svg.lstrip().startswith("<svg") for svg in written.pictures.values())
    at = [written.page.index(words) for words in (part.title, part.text, part.predict, "<details", part.answer)]
    assert at == sorted(at)
    assert written.played.startswith("<!DOCTYPE html>")
    assert "(swaps-played.html)" in written.page
    assert "Measured on the page only, at `?story=swaps&part=1`." in written.page


def test_every_formula_of_the_pages_and_notebooks_becomes_mathml() -> None:
    converter = pytest.importorskip("latex2mathml.converter", reason="latex2mathml comes with the docs extra")
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")]
    pages += [notebook_pages.page(path)[0] for path in notebook_pages.NOTEBOOKS]
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", "\n".join(pages), flags=re.M | re.S)
    formulas = [block or inline for block, inline in FORMULAS.findall(prose)]

    assert len(formulas) > 20
    for formula in formulas:
        math = converter.convert(equations.NUMBER.sub("", formula.strip()))
        assert not re.search(r"<mtext>\\|<mi>\\|<mi>&<", math), formula


def test_a_formula_keeps_the_number_of_its_paper() -> None:
    pytest.importorskip("latex2mathml", reason="latex2mathml comes with the docs extra")
    html = r'<div class="arithmatex">\[ a &lt; b \tag{5} \]</div> <span class="arithmatex">\(x\)</span>'

    shown = equations.on_page_content(html)

    assert shown.startswith('<div class="equation"><math')
    assert "<span>(5)</span></div>" in shown
    assert "&#x0003C;" in shown
    assert "tag" not in shown
    assert shown.count("<math") == 2
