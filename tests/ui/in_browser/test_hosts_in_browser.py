"""Explorers and pictures as guests in the applications of others: rows, tabs and templates, light and dark."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from benchmarks.page.in_chromium import Messages
from pages import ON_PAGE, answers, new_page, until

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]

COMMON = """
import panel as pn
import gpexplorer as gpx

SPEC = gpx.Spec("cholqr", {"num_inducing": 6}, data="snelson-like", kernel="se")

def opened():
    run = SPEC.open()
    run.finish(steps=2)
    return run

def tabs():
    return pn.Tabs(("plot", opened().plot("fit")), ("player", opened().widget()), ("run", opened()))

def figure():
    import bokeh.plotting
    theirs = bokeh.plotting.figure(height=100, name="theirs", stylesheets=[":host { --bk-outline-line-color: red }"])
    theirs.line([0, 1], [0, 1])
    return theirs

def template(kind, theme, below, *explorers):
    page = kind(title="A host", theme=theme, main=[pn.Row(*explorers), below])
    assert pn.config.design is not gpx_design(), pn.config.design
    return page

def gpx_design():
    import panel_material_ui
    return panel_material_ui.theme.MaterialDesign

"""
APPS = {
    "dark": "template(pn.template.FastListTemplate, 'dark', tabs(), gpx.Explorer(SPEC), gpx.Explorer(SPEC))",
    "material": "template(pn.template.MaterialTemplate, 'default', opened(), gpx.Explorer(SPEC))",
    "narrow": "pn.Column(gpx.Explorer(SPEC), figure(), width=1000)",
}  # name of each script of a host -> what it serves
BACKGROUNDS = (
    f"{ON_PAGE}.filter((m) => m.type === 'Figure').map((m) => m.background_fill_color.value ?? m.background_fill_color)"
)

RECOLOURED_AND_SHORTENED = f"""() => {{
  for (const {{ glyph, data_source: source }} of {ON_PAGE}.filter((m) => m.type === "GlyphRenderer")) {{
    if (!("line_alpha" in glyph) || source.get_length() < 3) continue
    glyph.setv({{ line_alpha: 0.5 }}, {{ sync: false }})
    const data = Object.fromEntries(source.columns().map((name) => [name, source.get_column(name).slice(0, 2)]))
    source.setv({{ data }}, {{ sync: false }})
  }}
}}"""


COUNT = """() => {
  globalThis.asked = globalThis.layouts = 0
  const theirs = Bokeh.index.find_one(Bokeh.documents[0].get_model_by_name("theirs")).el
  const isTheirs = (part) => part != null && (part === theirs || isTheirs(part.parentNode ?? part.host))
  const { getComputedStyle } = window
  window.getComputedStyle = (part, ...others) => {
    const style = getComputedStyle.call(window, part, ...others)
    const ask = (name) => {
      asked += name.startsWith("--bk-") && !isTheirs(part)
      return style.getPropertyValue(name)
    }
    return new Proxy(style, { get: (_, name) => {
      const value = name === "getPropertyValue" ? ask : style[name]
      return typeof value === "function" && value !== ask ? value.bind(style) : value
    } })
  }
  for (const root of Bokeh.index.roots) {
    const { update_layout } = root
    root.update_layout = function () {
      layouts += 1
      return update_layout.call(this)
    }
  }
}"""  # from now on: questions of our figures for their style, and layouts of the host's page
OUTLINE = """() => {
  const theirs = Bokeh.documents[0].get_model_by_name("theirs")
  return Bokeh.index.find_one(theirs).visuals.outline_line.get_line_color()
}"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of somebody's own `panel serve`, whose scripts show explorers."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    folder: Path = tmp_path_factory.mktemp("host")
    for name, shown in APPS.items():
        (folder / f"{name}.py").write_text(f"{COMMON}{shown}.servable()")
    command = [sys.executable, "-m", "panel", "serve", *(f"{name}.py" for name in APPS), "--port", str(port)]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    until(lambda: answers(f"http://localhost:{port}/"))
    yield f"http://localhost:{port}"
    server.kill()
    server.wait()
    log = (folder / "log").read_text()
    assert "Error" not in log
    assert "overridden" not in log  # Panel's advice on sizes, which a host cannot follow


def opened(browser: Browser, address: str) -> tuple[Page, list[str]]:
    """A page of the host, and what its console says against it."""
    page, errors = new_page(browser), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address, timeout=120_000)  # the host computes five runs first
    return page, errors


def colours(page: Page) -> set[str]:
    """The backgrounds of the figures."""
    return set(page.evaluate(BACKGROUNDS))


@pytest.fixture(scope="module")
def narrow(browser: Browser, host: str) -> Iterator[tuple[Page, list[str], Messages]]:
    """A page with one explorer beside a figure of the host, what its console says against it, and its messages."""
    messages, page, errors = Messages(), new_page(browser), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    messages.count(page)
    page.goto(f"{host}/narrow")
    page.get_by_role("tab", name="Calibration").wait_for()
    yield page, errors, messages
    page.close()


def test_in_a_thousand_pixels_a_curve_is_what_is_seen_first(narrow: tuple[Page, list[str], Messages]) -> None:
    page, errors, _ = narrow
    until(lambda: page.locator(".bk-Figure").count() >= 2, 60)
    until(lambda: page.locator(".prediction").first.bounding_box() is not None, 30)
    box = page.locator(".prediction").first.bounding_box()
    assert box["y"] < 400
    assert box["x"] + box["width"] <= 1000
    assert errors == []


def test_a_step_in_a_host_asks_for_no_style_lays_out_no_page_and_is_one_message(
    narrow: tuple[Page, list[str], Messages],
) -> None:
    page, errors, messages = narrow
    page.evaluate(COUNT)
    messages.reset()
    page.get_by_role("button", name="Play or pause").click()
    until(lambda: int(page.locator(".facts b").first.text_content() or 0) > 3 and messages.pictures > 3, 60)
    page.get_by_role("button", name="Play or pause").click()
    until(lambda: "Play" in (page.get_by_role("button", name="Play or pause").text_content() or ""))
    assert messages.changes <= 2 * messages.pictures
    assert page.evaluate("() => [asked, layouts]") == [0, 0]
    assert page.evaluate(OUTLINE) == "red"  # the figures of the host keep the style sheets of the host
    assert errors == []


def test_lines_in_a_host_are_recoloured_and_shortened_in_one_message(
    narrow: tuple[Page, list[str], Messages],
) -> None:
    """The last one on this page, whose lines stay short."""
    page, errors, messages = narrow
    for _ in range(20):  # until no picture is on its way
        before = messages.frames
        page.wait_for_timeout(1500)
        if messages.frames == before:
            break
    page.evaluate(RECOLOURED_AND_SHORTENED)  # in one go, as by one message: "Size mismatch" of Bokeh
    page.wait_for_timeout(500)
    assert errors == []


@pytest.mark.parametrize(("template", "figures", "dark"), [("dark", 5, True), ("material", 2, False)])
def test_guests_are_as_dark_as_their_host_in_a_row_and_in_tabs_and_play_each_for_itself(
    browser: Browser, host: str, template: str, figures: int, dark: bool
) -> None:
    """The light host has one explorer and a run, in the colours that both have anyway; the dark one has all guests."""
    page, errors = opened(browser, f"{host}/{template}")
    until(lambda: page.locator(".bk-Figure").count() >= figures, 120)
    until(lambda: len(colours(page)) == 1 and all((int(colour[1:3], 16) < 128) == dark for colour in colours(page)), 30)
    paper = page.locator(".MuiPaper-root").first
    shade = "(one) => Number(getComputedStyle(one).backgroundColor.match(/[0-9]+/)[0])"
    until(lambda: (paper.evaluate(shade) < 128) == dark, 30)
    if dark:
        check_that_each_plays_for_itself(page)
        open_tabs(page)
    words = page.get_by_role("rowheader", name="training rows")
    words.wait_for()
    assert (words.evaluate("(one) => Number(getComputedStyle(one).color.match(/[0-9]+/)[0])") > 128) == dark
    assert errors == []
    page.close()


def check_that_each_plays_for_itself(page: Page) -> None:
    """The second of two explorers takes steps, and the first one stays where it is."""
    buttons = page.get_by_role("button", name="Play or pause")
    until(lambda: buttons.count() == 2 and page.locator(".facts").count() == 2, 60)
    buttons.last.click()
    until(lambda: int(page.locator(".facts").last.locator("b").first.text_content() or 0) > 2, 60)
    assert page.locator(".facts").first.locator("b").first.text_content() == "0"


def open_tabs(page: Page) -> None:
    """Open the tabs of a player, which is drawn then, and of a run."""
    buttons = page.get_by_role("button", name="Play or pause")
    others = buttons.count()
    page.get_by_text("player", exact=True).click()
    until(lambda: buttons.count() == others + 1)
    page.get_by_text("run", exact=True).click()
