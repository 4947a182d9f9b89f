"""The blocks of code in CONTRIBUTING.md. As a script, it runs the linters on them, as `make lint` does."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
METHOD, SOLVER, KERNEL, VIEW, SERIES = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.M | re.S)
[CARD] = re.findall(r"^```yaml\n(.*?)^```", TEXT, flags=re.M | re.S)
RECIPES = {
    "recipe_method": METHOD,
    "recipe_solver": SOLVER,
    "recipe_kernel": KERNEL,
    "recipe_view": VIEW,
    "recipe_series": SERIES,
}


def lint() -> int:
    """Check the recipes as files of their own, by the rules of the package; the exit status of the first failure."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{name}.py") for name in RECIPES]
        for path, recipe in zip(files, RECIPES.values(), strict=True):
            path.write_text(recipe, "utf-8")
        config = str(ROOT / "pyproject.toml")
        for command in (
            ["ruff", "check", "--quiet", "--config", config, "--config", "src=['.']", *map(str, files)],
            ["ruff", "format", "--quiet", "--check", "--config", config, *map(str, files)],
            ["mypy", "--config-file", config, *map(str, files)],
        ):
            status = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode
            if status:
                return status
    return 0


if __name__ == "__main__":
    sys.exit(lint())
