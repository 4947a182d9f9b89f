"""The pages of docs/ before they are built: navigation, links, parts made from other files, and code blocks."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from typer.main import get_command

import gpexplorer as gpx
import papers
from benchmarks.__main__ import app as benchmarks_app
from docs import gallery, story_pages
from gpexplorer.__main__ import app
from gpexplorer.recommendation import held_out_score
from search_packages import stand_ins

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
PAGES_WITH_PYTHON = {
    "own-data.md",
    "cluster.md",
    "in-a-notebook.md",
    "which-method.md",
    "tuning.md",
    "hyperparameters.md",
}
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
COSTS = [{"key": "sgpr", "memory": 2.5e9, "flops": 1e9, "largest array": "factor L"}]
LISTED = {  # what the command line would print, so that no process is started here
    "methods": [
        {"key": key, "title": method.title, "family": method.family, "paper": method.paper, "settings": []}
        for key, method in gpx.methods.items()
    ],
    "kernels": [{"key": "se", "title": "a|b", "inputs": "real", "hyperparameters": ["sd", "noise"]}],
    "costs --rows 100000": COSTS,
    "costs --rows 1000000": COSTS,
    "costs --rows 10000000": COSTS,
    "data": [{"name": "x", "n": 1, "d": 1, "source": "generator", "licence": "", "notes": ""}],
}


def nav_pages(entry: Any) -> list[str]:
    """The files that a navigation names, in order."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in nav_pages(part)]


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The build hook, with the lists of methods, kernels and data from this process."""
    spec = importlib.util.spec_from_file_location("catalogue_hook", DOCS / "catalogue_hook.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.listing = LISTED.__getitem__  # type: ignore[attr-defined]
    return module


@pytest.fixture(scope="module")
def expanded(hook: ModuleType) -> dict[str, str]:
    """The pages as mkdocs receives them."""
    return {page.name: hook.expanded(_unmarked(page.read_text("utf-8"))) for page in PAGES}


def _unmarked(text: str) -> str:
    """A page without the places that other hooks fill."""
    return text.replace(gallery.MARKER, "").replace(story_pages.MARKER, "")


def test_the_navigation_names_every_page_and_every_notebook_once_and_no_other():
    notebooks = [f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")]
    tables = [line.removeprefix("/") for line in CONFIG["not_in_nav"].split()]  # which other pages link to
    tables.remove("stories/")  # pages that a hook makes
    assert sorted([*nav_pages(CONFIG["nav"]), *tables]) == sorted([*(page.name for page in PAGES), *notebooks])
    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert all(f"]({page}" in text for page in tables)


def test_links_between_pages_resolve(hook: ModuleType, expanded: dict[str, str]):
    titles = {
        name: {re.sub(r"[^\w]+", "-", title.lower()).strip("-") for title in re.findall(r"^#+ (.+)$", text, flags=re.M)}
        for name, text in expanded.items()
    }
    wrong = []
    for name, text in expanded.items():
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            page, _, anchor = target.partition("#")
            generated = (*hook.PLAYING, *hook.GENERATED)
            notebook = page.startswith("notebooks/") and (ROOT / page).with_suffix(".ipynb").is_file()
            exists = page in titles or page in generated or notebook or re.match(r"https?://", target)
            by_key = anchor in gpx.methods
            if (page and not exists) or (anchor and not by_key and anchor not in titles.get(page or name, ())):
                wrong.append(f"{name}: {target}")

    assert sum("](" in text for text in expanded.values()) > 10
    assert wrong == []


def test_every_marker_is_replaced_and_every_method_has_its_settings(expanded: dict[str, str]):
    assert [name for name, text in expanded.items() if re.search(r"^<!-- ", text, flags=re.M)] == []
    own = {key: kind for key, kind in gpx.methods.items() if kind.__module__.startswith("gpexplorer.")}
    assert len(own) > 30
    for key, kind in own.items():
        page = kind.family.replace("_", "-") + ".md"
        assert f"`{key}` {{ #{key} }}" in expanded[page]


def test_every_method_is_described_once_also_a_new_one(
    hook: ModuleType, expanded: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    def described(text: str) -> list[str]:
        tables = re.findall(r"^\| key \| what it is \|.*\n(?:\|.*\n)+", text, flags=re.M)
        return re.findall(r"^\| `([a-z0-9-]+)` \|", "".join(tables), flags=re.M)

    own = {key for key, method in gpx.methods.items() if method.__module__.startswith("gpexplorer.")}
    by_hand = [key for page in PAGES for key in described(page.read_text("utf-8"))]
    assert len(by_hand) > 30
    assert set(by_hand) <= own
    assert sorted(key for text in expanded.values() for key in described(text)) == sorted(own)

    new = {"key": "a-new-one", "title": "New", "family": "inducing", "paper": "", "settings": []}
    monkeypatch.setattr(hook, "listing", {"methods": [*LISTED["methods"], new]}.__getitem__)
    assert hook.others("inducing").splitlines()[-1] == "| `a-new-one` | New |  |  |"
    assert "a-new-one" not in hook.others("exact")


def test_the_run_that_the_documentation_shows_is_saved_by_its_program(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.argv", ["", str(tmp_path / "a-run.html")])

    exec(compile(hook.SAVED_RUN.replace("steps=60", "steps=2"), "catalogue_hook.py", "exec"), {})

    page = (tmp_path / "a-run.html").read_text("utf-8")
    assert "<h1>Ten inducing points look for their places</h1>" in page
    (content,) = re.findall(r'id="content">([^<]*)<', page)
    assert "step 2" in gzip.decompress(base64.b64decode(content)).decode()


def test_a_marker_that_names_nothing_is_refused(hook: ModuleType):
    for marker in ("<!-- nothing -->", "<!-- include: README.md, No such section -->", "<!-- trust: kin40k; no -->"):
        with pytest.raises(ValueError, match=r"is not known|has no"):
            hook.expanded(marker)


def test_no_page_loads_anything_from_another_host(expanded: dict[str, str]):
    loads = r"<(?:script|link|img|iframe)[^>]*https?://|!\[[^\]]*\]\(https?://|@import|```mermaid"

    assert CONFIG["theme"]["font"] is False
    assert not {"extra_javascript", "repo_url"} & set(CONFIG)
    assert "//" not in (DOCS / CONFIG["extra_css"][0]).read_text("utf-8")
    assert [name for name, text in expanded.items() if re.search(loads, text)] == []


def test_commands_on_the_pages_exist(expanded: dict[str, str]):
    text = "\n".join(expanded.values())
    named = set(re.findall(r"^python -m gpexplorer ([a-z]+)", text, flags=re.M))
    measured = set(re.findall(r"^python -m benchmarks(?: --threads \d)? ([a-z-]+)", text, flags=re.M))
    reproduced = set(re.findall(r"^python -m papers ([a-z0-9-]+)", text, flags=re.M))

    assert {"recommend", "predict", "sweep", "run"} <= named <= set(get_command(app).commands)
    assert {"cholqr", "arena", "trust"} <= measured <= set(get_command(benchmarks_app).commands)
    assert {"grief-table1", "stochastic-table4"} <= reproduced <= {*papers.names(), "all"}


@pytest.mark.parametrize("name", sorted(PAGES_WITH_PYTHON))
def test_the_python_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    trackers = stand_ins()
    for package, stand_in in trackers.items():
        monkeypatch.setitem(sys.modules, package, stand_in)
    written = (DOCS / name).read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", written, flags=re.M | re.S)
    names: dict[str, Any] = {}

    for block in blocks:
        exec(compile(block, name, "exec"), names)

    assert blocks
    if name == "own-data.md":
        assert names["run"].scores()["smse"] < 0.1
        assert abs(names["mean"].numpy() - names["y"][:5]).max() < 0.5
    if name == "cluster.md":
        for work, seconds in names["seconds"].items():
            row = next(line for line in written.splitlines() if line.startswith(f"| {work} |"))
            shown = [float(cell) for cell in re.findall(r"([\d.]+) s \|", row.removeprefix(f"| {work} |"))]
            assert seconds == pytest.approx(shown, rel=0.04)
    if name == "hyperparameters.md":
        check_first_week(names)
    if name == "tuning.md":
        best = held_out_score(names["spec"], names["study"].best_params)
        assert best == names["study"].best_value
        assert best < names["study"].reported[0]
        assert trackers["mlflow"].logged["smse"] == names["run"].scores()["smse"]


def check_first_week(names: dict[str, Any]) -> None:
    """What each of the ten programs promises."""
    tables = {key: names[key].hyperparameters for key in ("mode", "run", "healed")}
    assert 0.5 <= tables["mode"]["noise"].value <= 2.0
    assert tables["mode"]["lengthscale[x10]"].value < tables["run"]["lengthscale[x10]"].value  # the prior has mode e^-1
    assert 0.0 < tables["run"]["noise"].standard_error < tables["run"]["noise"].value
    assert len(names["again"].spec.settings["start"]) == len(names["own"].inducing_points()) == 3
    healed = tables["healed"]["lengthscale[x1]"]
    assert healed.start == pytest.approx(100.0)
    assert healed.value < 5.0


def test_only_the_tested_pages_contain_python_of_their_own():
    elsewhere = {"from-other-libraries.md"}  # tests/docs runs it beside the other libraries
    reports = {"upstream.md"} | elsewhere  # blocks of the former show defects of other projects
    with_python = {page.name for page in PAGES if "```python" in page.read_text("utf-8")}

    assert with_python - reports == PAGES_WITH_PYTHON
