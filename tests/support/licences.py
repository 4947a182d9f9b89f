"""The licences of all pinned packages, as a page of the documentation: `python tests/support/licences.py`.

The names come from constraints.txt and the licences from the metadata of the installed packages, so the page is made in
the environment of the tests.
"""

from __future__ import annotations

from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "licences.md"
LONGEST = 60  # characters of a licence; some packages give its whole text
UNKNOWN = "not stated in its metadata"
HEAD = """# Licences of what gpexplorer uses

gpexplorer itself is under the BSD 3-Clause licence. This page lists the licence of every package that `constraints.txt`
pins, as its metadata state it: first what an installation without extras brings along, then what extras, tests and the
documentation need. `python tests/support/licences.py` writes it.

"""


def licence(package: Distribution) -> str:
    """What the metadata of a package say: the expression, the classifiers, or the first line of the free text."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    prefix = "License :: "
    named = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or () if line.startswith(prefix)]
    named = [name for name in named if name != "OSI Approved"]
    if named:
        return ", ".join(sorted(set(named)))
    first, *_ = (metadata.get("License") or "").strip().splitlines() or [""]
    return first[:LONGEST] or UNKNOWN


def pinned() -> list[str]:
    """The names of the pinned packages, in alphabetical order."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines())
    return sorted({canonicalize_name(line.partition("==")[0]) for line in lines if line})


def required() -> set[str]:
    """The names of what an installation of gpexplorer without extras brings along on this system."""
    environment, found, waiting = {**default_environment(), "extra": ""}, set[str](), ["gpexplorer"]
    while waiting:
        for line in distribution(waiting.pop()).requires or ():
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            if name not in found and (requirement.marker is None or requirement.marker.evaluate(environment)):
                found.add(name)
                waiting.append(name)
    return found


def table(names: list[str]) -> str:
    """A table of these packages and their licences; a package that this system does not use has a dash."""
    rows = []
    for name in names:
        try:
            stated = licence(distribution(name))
        except PackageNotFoundError:
            stated = "—"
        rows.append(f"| {name} | {stated.replace('|', ' ')} |")
    return "\n".join(["| package | licence |", "|---|---|", *rows])


def page() -> str:
    """The whole page."""
    names, needed = pinned(), required()
    first = table([name for name in names if name in needed])
    second = table([name for name in names if name not in needed])
    return f"{HEAD}## Always installed\n\n{first}\n\n## Extras, tests and documentation\n\n{second}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"{len(pinned())} packages in {PAGE}")
