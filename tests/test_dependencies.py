"""Every package that gpexplorer imports is one that it declares, and none has a known hole."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gpexplorer
from gpexplorer.methods import gpytorch_parts

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def imported() -> dict[str, str]:
    """Top-level name of every import outside the standard library -> a file that imports it."""
    names: dict[str, str] = {}
    for path in sorted((ROOT / "gpexplorer").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            else:
                continue
            names |= {module.partition(".")[0]: path.name for module in modules}
    return {name: file for name, file in names.items() if name not in sys.stdlib_module_names and name != "gpexplorer"}


def test_every_import_is_declared():
    optional = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    requirements = [Requirement(line) for line in [*PROJECT["dependencies"], *optional]]
    declared = {canonicalize_name(name) for needed in requirements for name in (needed.name, *needed.extras)}
    distributions = packages_distributions()

    undeclared = {
        name: file
        for name, file in imported().items()
        if not set(map(canonicalize_name, distributions.get(name, [name]))) & declared
    }

    assert undeclared == {}


def test_no_version_of_bokeh_is_accepted_that_opens_websockets_to_other_sites():
    [bokeh] = [requirement for requirement in map(Requirement, PROJECT["dependencies"]) if requirement.name == "bokeh"]

    assert "3.8.1" not in bokeh.specifier  # CVE-2026-21883
    assert "3.8.2" in bokeh.specifier


def test_importing_gpytorch_gives_none_of_its_warnings(tmp_path, monkeypatch):
    lines = ["import warnings", *(f'warnings.warn("old", {kind})' for kind in ("DeprecationWarning", "FutureWarning"))]
    (tmp_path / "gpytorch.py").write_text("\n".join(lines), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "gpytorch", None)  # so that what is there now, or nothing, comes back
    monkeypatch.delitem(sys.modules, "gpytorch")

    assert gpytorch_parts.package().__file__ == str(tmp_path / "gpytorch.py")  # warnings are errors


def test_the_conda_recipe_has_the_requirements_and_the_version_of_the_package():
    recipe = yaml.safe_load((ROOT / ".github" / "conda" / "recipe.yaml").read_text("utf-8"))
    python, *run = recipe["requirements"]["run"]
    listed = {name: set(bounds.split(",")) for name, _, bounds in (line.partition(" ") for line in run)}
    needs = [Requirement(text) for text in PROJECT["dependencies"]]

    assert listed == {need.name.replace("torch", "pytorch"): {str(bound) for bound in need.specifier} for need in needs}
    assert python == f"python {PROJECT['requires-python']}"
    assert recipe["context"]["version"] == gpexplorer.__version__


def test_a_spec_needs_no_library_that_only_later_work_needs():
    """Counted, not timed: pandas and scipy took a third of the time to the first Spec."""
    code = "import sys, gpexplorer as gpx; gpx.Spec('gbcd', data='kin40k').key(); "
    code += "import os; print(os.environ['OMP_WAIT_POLICY'], *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_WAIT_POLICY": "ACTIVE"},
    )  # fmt: skip
    policy, *found = done.stdout.split()
    assert policy == "ACTIVE"  # what a user has set stays
    packages = {name.partition(".")[0] for name in found}
    later = {"pandas", "scipy", "sklearn", "holoviews", "bokeh", "panel", "dask", "gpytorch", "matplotlib", "numba"}
    assert packages & later == set()
    assert len([name for name in found if not name.startswith(("torch", "gpexplorer"))]) < 900
