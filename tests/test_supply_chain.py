"""What an installation brings along: licences, hashes, and no second index unless someone asks for it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

import licences

EXTRA_INDEX = re.compile(r"extra[-_]index", re.IGNORECASE)


def test_the_page_of_licences_names_every_pinned_package(root: Path):
    rows = re.findall(r"^\| ([a-z0-9.-]+) \| (.+) \|$", (root / "docs/licences.md").read_text("utf-8"), re.MULTILINE)
    named = dict(rows[1:] if rows[0][0] == "package" else rows)
    named.pop("package", None)

    assert sorted(named) == licences.pinned()
    assert [name for name, stated in named.items() if stated in ("—", "")] == []


def test_what_is_always_installed_has_no_licence_that_binds_its_users(root: Path):
    always = (root / "docs/licences.md").read_text("utf-8").split("## Extras")[0]

    assert {"torch", "panel", "bokeh", "scipy"} <= set(re.findall(r"^\| ([a-z0-9.-]+) \|", always, re.MULTILINE))
    assert not re.findall(r"^\| (\S+) \| .*(?:GPL|General Public)", always, re.MULTILINE)
    assert licences.UNKNOWN not in always


def test_people_are_not_told_to_use_a_second_index(root: Path):
    """A package of the same name on a second index would be installed if its version is higher."""
    told = [root / "README.md", root / "Makefile", root / ".github/workflows/release.yml", *root.glob("docs/*.md")]

    assert [path.name for path in told if EXTRA_INDEX.search(path.read_text("utf-8"))] == []


def test_a_release_has_its_dependencies_with_hashes(root: Path):
    jobs = yaml.safe_load((root / ".github/workflows/release.yml").read_text("utf-8"))["jobs"]

    [command] = [step["run"] for step in jobs["build"]["steps"] if "--generate-hashes" in step.get("run", "")]
    assert "-c constraints.txt" in command
    assert "gh release create" in jobs["release"]["steps"][-1]["run"]
    assert "requirements.txt" in jobs["release"]["steps"][-1]["run"]


def test_workflows_run_only_what_is_pinned(root: Path):
    """Actions by their commits, and tools that make a release by their versions."""
    texts = {path.name: path.read_text("utf-8") for path in (root / ".github/workflows").glob("*.yml")}
    actions = [action for text in texts.values() for action in re.findall(r"uses: (\S+)", text)]
    tools = re.findall(r"pip install ((?:[a-z]+\S* ?)+)$", texts["release.yml"], re.MULTILINE)

    assert len(actions) > 5
    assert [action for action in actions if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []
    assert tools
    assert [tool for line in tools for tool in line.split() if "==" not in tool and not tool.startswith("dist/")] == []
    assert "PIP_CONSTRAINT" in texts["release.yml"]


def test_make_says_that_it_installs_for_the_whole_system(root: Path):
    lines = [line for line in (root / "Makefile").read_text("utf-8").splitlines() if "apt-get" in line]

    assert lines
    assert all("you are root" in line for line in lines)
