"""What every test shares: one torch thread (matrices here are small), a browser found here, and data that need no
network. Shapes in signatures are checked where tests run one after another: a fifth more time (test_shapes.py).
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jaxtyping import install_import_hook

# Without compiled files, each process compiles the tests, the package and their assertions again, which is half of the
# time that it takes to find the tests.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Steps are those in torch, whose operations the tests count; test_compiled_try.py compares the compiled ones with them.
os.environ["GPEXPLORER_COMPILED"] = "0"

# As the package sets it, but before any test imports torch. Else threads that wait spin, on cores that other workers
# need: on a busy machine, two tests with two threads took 15 s of the processors instead of 5.5.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

SHAPED = ("gpexplorer.linalg", "gpexplorer.kernels", "gpexplorer.objectives", "gpexplorer.posteriors.inducing")
SIDE_BY_SIDE = "PYTEST_XDIST_WORKER" in os.environ
gc.disable()  # until all tests are found: it took three tenths of the time of imports, and they leave little
if not SIDE_BY_SIDE:
    install_import_hook(SHAPED, "beartype.beartype")

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
# Playwright's list, which a second list replaces, and two pages that each window has for its address bar: with them a
# blank page takes 1.1 s of a processor instead of 0.25 s.
FEATURES_OFF = (
    "AimEnabled",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxPopup",
)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Side by side, each test asks the first process how often it has failed, and says how often it may run again.

    The system holds back each question for up to 40 ms, until the first process has confirmed what was said before:
    five minutes of the workers for 10,000 short tests.
    """
    connection = getattr(getattr(config, "failures_db", None), "sock", None)
    if SIDE_BY_SIDE and connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side, a file stays with one worker, and what takes longest comes first.

    Files that open panels of the shared page are the last ones that use it, since the panels stay there.

    The tests that open the page take longest. They are two groups, each with a server and a browser of its own; other
    tests that need the server join them, since a third server takes as long to start as most of these tests.
    """

    def marked(item: pytest.Item, name: str) -> bool:
        return item.get_closest_marker(name) is not None

    def needs_server(item: pytest.Item) -> bool:
        return marked(item, "ui") or "served" in getattr(item, "fixturenames", ())

    server_files = sorted({item.path.stem for item in items if needs_server(item)})
    group = {stem: f"page {number % 2}" for number, stem in enumerate(server_files)}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group.get(item.path.stem, item.path.stem)))
    items.sort(key=lambda item: (item.path.stem not in group, marked(item, "panels"), not marked(item, "long")))


def pytest_collection_finish() -> None:
    """What exists by now stays to the end, so that no search for garbage walks through it again.

    The others come after 20,000 new objects instead of 700, since pages and pictures consist of that many.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Before each test, since a command may set it: two workers with two threads each wait for each other."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout: where README.md, apps/ and notebooks/ are."""
    return ROOT


@pytest.fixture(scope="session")
def _stand_ins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Any, ...]]:
    from gpexplorer.data.sets.cards import card
    from stand_in_files import NAMES, write_like

    folder = tmp_path_factory.mktemp("files")
    return folder, tuple(write_like(card(name), folder) for name in NAMES)


@pytest.fixture
def data_dir(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder that holds kin40k and concrete: the public files where this machine has them, else stand-ins.

    In this process `gpx.data.load("kin40k")` reads them without a network; assert nothing that only the real rows show.
    """
    from stand_in_files import believed, public_files

    if (files := public_files()) is not None:
        monkeypatch.setenv("GPEXPLORER_DATA_DIR", str(files))
        yield files
        return
    folder, made = request.getfixturevalue("_stand_ins")
    monkeypatch.setenv("GPEXPLORER_DATA_DIR", str(folder))
    with believed(*made):
        yield folder


@pytest.fixture
def uploads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads are read by the function of the child process in this one: each child takes 0.7 s of a processor.

    For tests of what is read, and of what is made of it; that there is a child, and its limits, are others' claim.
    """
    from gpexplorer.data import uploads
    from gpexplorer.data.upload_child import answered

    def run(command: list[str], input: bytes, **_: Any) -> subprocess.CompletedProcess[bytes]:
        line, _, data = input.partition(b"\n")
        return subprocess.CompletedProcess(command, 0, b"".join(answered(line, data)), b"")

    kept = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(uploads, "subprocess", kept)


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """Recommendations fit 30 trees instead of 100 or 40, up to 16 times: half of the time where candidates are few.

    For tests whose claim is not how well trees predict.
    """
    from gpexplorer.recommendation import simple_members

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simple_members, "ITERATIONS", 30)
        patch.setattr(simple_members, "FEW_ITERATIONS", 30)
        yield


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """The browser installed here if there is one, else the one Playwright brought; never a call to another host."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    arguments = [*QUIET, f"--disable-features={','.join(FEATURES_OFF)}"]
    return {**browser_type_launch_args, "args": arguments, **({"executable_path": found} if found else {})}
