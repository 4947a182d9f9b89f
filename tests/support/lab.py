"""A JupyterLab server with a folder of its own, and a notebook open in it, for browser tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
from playwright.sync_api import Frame, Locator, Page

from pages import answers, until

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
        env = {**os.environ, **homes, **lab, "IPYTHONDIR": str(folder / ".jupyter" / "ipython"), "OMP_NUM_THREADS": "1"}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), env.get("PYTHONPATH")]))
        options = ["--no-browser", f"--port={port}", "--ServerApp.token=", "--ServerApp.password=", "--allow-root"]
        with (folder / ".jupyter" / "log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyter", "lab", *options, f"--ServerApp.root_dir={folder}"],
                stdout=log, stderr=log, env=env, cwd=folder,
            )  # fmt: skip
        until(lambda: answers(f"{self.url}/api"), 90)

    def write(self, name: str, *sources: str) -> None:
        """Write a notebook with these cells of code."""
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), self.folder / name)

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
    """An open notebook, with the errors that its page logged and its requests to other hosts."""

    def __init__(self, page: Page, lab: Lab, name: str) -> None:
        self.page, self.complaints, self.elsewhere = page, [], []
        page.on("console", lambda entry: self.complaints.append(entry.text) if entry.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        own = (lab.url, lab.url.replace("http", "ws"), "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(own) else self.elsewhere.append(r.url))
        page.goto(f"{lab.url}/doc/tree/{name}")
        page.get_by_text("| Idle").first.wait_for(timeout=90_000)

    def run(self, cell: int) -> None:
        """Run this cell, counted from 0, and wait until it is done."""
        prompt = self.page.locator(".jp-CodeCell .jp-InputPrompt").nth(cell)
        before = (prompt.text_content() or "").strip("[]: ")
        prompt.click()
        self.page.keyboard.press("Control+Enter")

        def done() -> bool:
            count = (prompt.text_content() or "").strip("[]: ")
            return count.isdigit() and count != before

        until(done, 90)

    def set_theme(self, name: str) -> None:
        """Choose this theme in the menu of settings."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text="Settings").click()
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Theme$")).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{name}$")).click()

    def shut_down(self) -> None:
        """Shut the kernel down, as the menu of kernels does."""
        token = next(cookie["value"] for cookie in self.page.context.cookies() if cookie["name"] == "_xsrf")
        address = self.page.url.split("/doc/")[0] + "/api/kernels"
        for kernel in self.page.request.get(address).json():
            self.page.request.delete(f"{address}/{kernel['id']}", headers={"X-XSRFToken": token})

    def output(self, cell: int) -> Locator:
        """Return the output of this cell."""
        return self.page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea")

    def text(self, cell: int) -> str:
        """Run this cell and return the text that it prints."""
        self.run(cell)
        return (self.output(cell).text_content() or "").strip()

    def frame(self, cell: int) -> Frame:
        """Return the page inside this cell once it shows a picture."""
        handle = self.output(cell).locator("iframe").first.element_handle(timeout=60_000)
        frame = handle.content_frame()
        assert frame is not None
        frame.locator("canvas").first.wait_for(timeout=60_000)
        return frame
