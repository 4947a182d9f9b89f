"""What every test shares: two torch threads, a browser found on this machine, and data that needs no network."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import install_import_hook

SHAPED = ("gpexplorer.linalg", "gpexplorer.objectives", "gpexplorer.posteriors")
install_import_hook(SHAPED, "beartype.beartype")  # shapes in signatures hold whenever a test runs

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="session", autouse=True)
def _threads() -> None:
    torch.set_num_threads(2)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout: where README.md, apps/ and notebooks/ are."""
    return ROOT


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """The browser installed here if there is one, else the one Playwright brought; never a call to another host."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    return {**browser_type_launch_args, "args": list(QUIET), **({"executable_path": found} if found else {})}
