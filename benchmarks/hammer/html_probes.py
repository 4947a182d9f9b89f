"""Markup in every text that a person can give: no page makes an element of it, while the same markup as HTML runs.

Each text contains an image whose loading fails, and which then calls a function. A page must show the text, contain no
such image, and not have called the function. The control puts the same text into the page as HTML and must be called.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

import numpy as np

from gpexplorer.errors import SettingError
from gpexplorer.runs import Spec, Store

from ..page.chromium import chromium
from .measurement import Measurement, Report
from .served_page import served_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATIENCE = 30.0  # seconds until a text must be on the page
ROWS = 60
LISTEN = """
globalThis.fired = []
globalThis.hit = (number) => globalThis.fired.push(number)
localStorage.setItem("gpexplorer-tour", "seen")
"""
LOOK = """() => {
  const texts = [document.body.textContent], made = []
  const walk = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.matches('img[src="x"]')) made.push(element.getAttribute("onerror"))
      if (typeof element.value === "string") texts.push(element.value)
      if (element.shadowRoot) { texts.push(element.shadowRoot.textContent); walk(element.shadowRoot) }
    }
  }
  walk(document)
  for (const model of Bokeh.documents.flatMap((doc) => [...doc.all_models])) {
    for (const name of ["axis_label", "text", "title", "tooltips", "label"]) {
      if (name in model && model[name] != null) try { texts.push(JSON.stringify(model[name])) } catch {}
    }
  }
  return { shown: [...texts.join(" ").matchAll(/hit\\((\\d+)\\)/g)].map((match) => Number(match[1])),
           made, fired: globalThis.fired }
}"""
CONTROL = """(probe) => {
  const place = document.createElement("p")
  document.body.append(place)
  place.innerHTML = probe
}"""


class Probes:
    """Texts with markup, each with a number of its own.

    Attributes
    ----------
    sinks : dict
        Number of each text -> where it was put.
    """

    def __init__(self) -> None:
        self.sinks: dict[int, str] = {}

    def __call__(self, sink: str) -> str:
        """Return a text for this place. Inside an attribute it would end the attribute."""
        number = len(self.sinks) + 100
        self.sinks[number] = sink
        return f"\"'><img src=x onerror=hit({number})>"


class Seen(NamedTuple):
    """What a page has made of the texts.

    Attributes
    ----------
    hidden : list of str
        Places whose text the page did not show: nothing was tested there.
    made : list of str
        Places whose text became an element, or ran.
    """

    hidden: list[str]
    made: list[str]


Visit = Callable[["Page", str, Probes, Path], None]


def measure(share: float, folder: Path, report: Report) -> list[Measurement]:
    """Visit a page with markup in each of its texts; the share does not change the number of texts."""
    probes, fired = Probes(), False
    total = Seen([], [])
    with served_page(folder) as served, chromium() as browser:
        for name, visit in visits().items():
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            findings = visited(page, f"http://{served.address}/explorer", visit, probes, folder)
            report(f"{name}: not shown {findings.hidden}, made {findings.made}")
            total = Seen(total.hidden + findings.hidden, total.made + findings.made)
            fired = control(page) or fired
            page.close()
    return [
        Measurement(
            f"markup in {len(probes.sinks)} texts: addresses, files, columns, notes, labels, settings, stored runs",
            f"{len(total.made)} became an element, {len(total.hidden)} were not shown; "
            f"the control {'ran' if fired else 'did not run'}",
            "all are shown as text, none becomes an element, and the control runs",
            fired and not total.made and not total.hidden,
        )
    ]


def visits() -> Mapping[str, Visit]:
    """The visits by name; each puts texts into one page."""
    return {
        "an address": wrong_address("data", "kernel", "set.num_inducing", "view", "hide"),
        "an address with long lists": wrong_address("method", "?"),
        "an address with unknown settings": wrong_address("set.?", "ask"),
        "files, fields and stored runs": files_and_fields,
    }


def visited(page: Page, url: str, visit: Visit, probes: Probes, folder: Path) -> Seen:
    """Make one visit, and return what the page has made of its texts. The server keeps its store in `folder / "store"`.

    Parameters
    ----------
    page : playwright Page
        A new page.
    url : str
        The address of the explorer.
    visit : callable
        Puts the texts where they belong.
    probes : Probes
        Makes the texts.
    folder : Path
        The directory of the store.
    """
    page.add_init_script(LISTEN)
    earlier, shown = set(probes.sinks), set[int]()
    became_elements: list[str] = []

    def look() -> bool:
        state = page.evaluate(LOOK)
        shown.update(state["shown"])
        became_elements.extend(map(str, [*state["made"], *state["fired"]]))
        return set(probes.sinks) - earlier <= shown

    visit(page, url, probes, folder)
    end = time.monotonic() + PATIENCE
    while not look() and time.monotonic() < end:
        page.wait_for_timeout(300)
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.wait_for_timeout(300)
        look()
    return Seen(
        [probes.sinks[number] for number in sorted(set(probes.sinks) - earlier - shown)], sorted(set(became_elements))
    )


def control(page: Page) -> bool:
    """Whether the markup runs where it is put into this page as HTML."""
    page.evaluate(CONTROL, Probes()("control"))
    end = time.monotonic() + PATIENCE
    while not page.evaluate("globalThis.fired.includes(100)"):
        if time.monotonic() > end:
            return False
        page.wait_for_timeout(100)
    return True


def wrong_address(*names: str) -> Visit:
    """A visit by an address in which these parts are wrong. The page says so in at most 800 characters."""

    def visit(page: Page, url: str, probes: Probes, folder: Path) -> None:
        parts = {}
        for name in names:
            if name.endswith("?"):  # the name itself is markup
                parts[name[:-1] + probes("link: a name")] = "1"
            else:
                parts[name] = probes(f"link: {name}")
        page.goto(f"{url}?v=1&{urlencode(parts)}")
        page.locator("canvas").first.wait_for(timeout=1000 * PATIENCE)

    return visit


def files_and_fields(page: Page, url: str, probes: Probes, folder: Path) -> None:
    """Stored runs, a table whose name and columns are markup, a bad one, a spec, a note, and values of a sweep."""
    write_runs(Store(folder / "store"), probes)
    if not page.url.startswith(url):  # a page that an earlier visit has opened is gone on with
        page.goto(f"{url}?page=laboratory")
    page.locator("canvas").first.wait_for(timeout=1000 * PATIENCE)
    names = [probes(f"column {kind}") for kind in ("input", "input, second", "target")]
    content = io.StringIO()
    writer = csv.writer(content)
    writer.writerows([names, *np.random.default_rng(0).normal(size=(ROWS, 3)).tolist()])
    table = {"name": f"{probes('file')}.csv", "mimeType": "text/csv", "buffer": content.getvalue().encode()}
    upload = page.locator("input[type=file]").first
    upload.set_input_files(table)  # type: ignore[arg-type]
    page.get_by_text(f"{ROWS} rows, 3 columns").wait_for(timeout=1000 * PATIENCE)
    page.get_by_role("button", name="Use these columns").click()
    page.get_by_text("54 training rows").wait_for(timeout=1000 * PATIENCE)
    for _ in range(2):
        page.get_by_role("button", name="One step").first.click()
        page.wait_for_timeout(500)

    page.get_by_text("Compare: runs you keep").click()
    page.get_by_role("button", name="Keep this run").click()
    page.locator(".tabulator-row").first.wait_for(timeout=1000 * PATIENCE)
    page.get_by_role("button", name="Stored runs").click()
    page.locator(".tabulator-row").nth(2).wait_for(timeout=1000 * PATIENCE)
    page.get_by_label("Values", exact=True).first.fill(probes("a value of a sweep"))
    page.get_by_label("Values", exact=True).first.blur()
    page.get_by_role("button", name="Sweep", exact=True).click()

    page.get_by_text("Link, code and files").click()
    note = page.get_by_label("Note on this run")
    note.fill(probes("note"))
    note.blur()
    spec = json.dumps({"gpexplorer": 1, "method": probes("method of a spec")}).encode()
    files = page.locator("input[type=file]")
    files.nth(1).wait_for(state="attached", timeout=1000 * PATIENCE)
    files.last.set_input_files({"name": "spec.json", "mimeType": "application/json", "buffer": spec})
    bad = {
        "name": f"{probes('file that cannot be read')}.csv",
        "mimeType": "text/csv",
        "buffer": b"a,b\n1,2\n3\n4,5,6\n",
    }
    upload.set_input_files(bad)  # type: ignore[arg-type]


def write_runs(store: Store, probes: Probes) -> None:
    """Keep two runs whose notes, data and names are markup, and one that cannot be read."""
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(ROWS, 1)), rng.normal(size=ROWS))
    for number in range(2):
        data = {"name": "upload", "file": f"{probes('stored file')}.csv", "target": "y", "inputs": ["x"]}
        spec = Spec("random", {"num_inducing": 5}, data=data, seed=number, budget={"steps": 1})
        run = spec.open(data=rows)
        run.spec = spec
        run.finish()
        key = store.put(run)
        store.annotate(key, probes("stored note"))
        run.close()
    refused = store.path / probes("name of a stored run")
    try:
        refused.mkdir(exist_ok=True)  # where a visit is repeated
    except OSError:
        raise SettingError(f"{store.path} does not take names with quotation marks: use another file system.") from None
    (refused / "journal.jsonl").touch()
    (refused / "spec.json").write_text(json.dumps({"gpexplorer": 1, "method": probes("stored method")}), "utf-8")
