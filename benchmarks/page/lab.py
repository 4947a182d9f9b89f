"""A JupyterLab server with a folder of its own, and a notebook open in it in a browser."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from .. import environment

if TYPE_CHECKING:
    from playwright.sync_api import Frame, Locator, Page

SETTINGS = {
    "apputils-extension/notification": '{"fetchNews": "false"}',
    "apputils-extension/themes": '{"theme": "JupyterLab Dark"}',
}


class Lab:
    """JupyterLab without a password, on this machine only, with the kernel of this environment."""

    def __init__(self, port: int, folder: Path) -> None:
        self.url, self.folder = f"http://localhost:{port}", folder
        names = ("CONFIG", "DATA", "RUNTIME")
        homes = {f"JUPYTER_{name}_DIR": str(folder / ".jupyter" / name) for name in names}
        for name, content in SETTINGS.items():
            file = folder / ".jupyter" / "settings" / f"@jupyterlab/{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        lab = {f"JUPYTERLAB_{name.upper()}_DIR": str(folder / ".jupyter" / name) for name in ("settings", "workspaces")}
        env = environment() | homes | lab
        env |= {"IPYTHONDIR": str(folder / ".jupyter" / "ipython"), "OMP_NUM_THREADS": "1"}
        options = ["--no-browser", f"--port={port}", "--ServerApp.token=", "--ServerApp.password=", "--allow-root"]
        with (folder / ".jupyter" / "log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyter", "lab", *options, f"--ServerApp.root_dir={folder}"],
                stdout=log, stderr=log, env=env, cwd=folder,
            )  # fmt: skip
        _until(lambda: _answers(f"{self.url}/api"), 90)

    def write(self, name: str, *sources: str) -> None:
        """Write a notebook with these cells of code."""
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        empty: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
        cells = [{**empty, "id": f"cell{number}", "source": source} for number, source in enumerate(sources)]
        book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
        (self.folder / name).write_text(json.dumps(book), "utf-8")

    def kernels(self) -> list[psutil.Process]:
        """Return the processes of the kernels that run now."""
        children = psutil.Process(self._process.pid).children()
        return [child for child in children if any("ipykernel" in word for word in child.cmdline())]

    def close(self) -> None:
        """End the server and its kernels."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Notebook:
    """An open notebook, with the errors that its page logged and its requests to other hosts.

    Parameters
    ----------
    page : Page
        A page without content.
    lab : Lab
        The server.
    name : str
        The file, in the folder of the server.
    front_end : str, default "doc/tree"
        "doc/tree" for JupyterLab, "notebooks" for Notebook 7, which the same server has if it is installed.
    """

    def __init__(self, page: Page, lab: Lab, name: str, front_end: str = "doc/tree") -> None:
        self.page, self._api = page, f"{lab.url}/api"
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        page.on("console", lambda entry: self.complaints.append(entry.text) if entry.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        allowed = (lab.url, lab.url.replace("http", "ws"), "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(allowed) else self.elsewhere.append(r.url))
        page.goto(f"{lab.url}/{front_end}/{name}")
        ready = page.get_by_text("| Idle") if front_end == "doc/tree" else page.locator("[data-status=idle]")
        ready.first.wait_for(timeout=90_000)

    def run(self, cell: int) -> None:
        """Run this cell, counted from 0, and wait until it is done."""
        prompt = self.page.locator(".jp-CodeCell .jp-InputPrompt").nth(cell)
        count_before = (prompt.text_content() or "").strip("[]: ")
        pressed = 0.0

        def has_run() -> bool:
            nonlocal pressed
            count = (prompt.text_content() or "").strip("[]: ")
            if count == count_before and time.monotonic() > pressed + 10.0:  # a page that is not ready loses the keys
                accept = self.page.locator(".jp-Dialog .jp-mod-accept")
                if accept.count():  # a slow machine has Jupyter ask, and nothing else can be pressed meanwhile
                    accept.first.click()
                prompt.click()
                self.page.keyboard.press("Control+Enter")
                pressed = time.monotonic()
            return count.isdigit() and count != count_before

        _until(has_run, 90)

    def run_all(self) -> None:
        """Run all cells, and return at once."""
        self._choose("Run", "Run All Cells")

    def set_theme(self, name: str) -> None:
        """Choose this theme in the menu of settings."""
        self._choose("Settings", "Theme", name)

    def _choose(self, menu: str, *entries: str) -> None:
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{menu}$")).click()
        for entry in entries:
            self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{entry}$")).click()

    def share_kernel(self, name: str) -> None:
        """Let the notebook of this name, which is not open yet, use the kernel of this one."""
        [kernel] = self.page.request.get(f"{self._api}/kernels").json()
        session = {"path": name, "name": name, "type": "notebook", "kernel": {"id": kernel["id"]}}
        self.page.request.post(f"{self._api}/sessions", data=session, headers=self._token)

    def shut_down(self) -> None:
        """Shut the kernel down, as the menu of kernels does."""
        for kernel in self.page.request.get(f"{self._api}/kernels").json():
            self.page.request.delete(f"{self._api}/kernels/{kernel['id']}", headers=self._token)

    @property
    def _token(self) -> dict[str, str]:
        return {"X-XSRFToken": next(c["value"] for c in self.page.context.cookies() if c["name"] == "_xsrf")}

    def output(self, cell: int) -> Locator:
        """Return the output of this cell."""
        return self.page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea")

    def text(self, cell: int) -> str:
        """Run this cell and return the text that it prints."""
        self.run(cell)
        return (self.output(cell).text_content() or "").strip()

    def frame(self, cell: int) -> Frame:
        """Return the page inside this cell once it shows a picture."""
        return self._page_inside(self.output(cell).locator("iframe").first)

    def last_frame(self) -> Frame:
        """Return the page inside the last cell of code, once that cell has run and shows a picture."""
        return self._page_inside(self.page.locator(".jp-CodeCell").last.locator("iframe"))

    def _page_inside(self, place: Locator) -> Frame:
        handle = place.element_handle(timeout=60_000)
        frame = handle.content_frame()
        assert frame is not None
        frame.locator("canvas").first.wait_for(timeout=60_000)
        return frame


def _answers(url: str) -> bool:
    """Whether a page is served at this address."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _until(holds: Callable[[], object], seconds: float) -> None:
    """Wait until this function returns something true."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"JupyterLab did not answer within {seconds:g} s.")
        time.sleep(0.05)
