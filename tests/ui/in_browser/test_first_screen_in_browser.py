"""The first screen in a browser: what is seen, what can be pressed, and that it plays without the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from benchmarks.page import first_view
from gpexplorer.views.screens.lesson_page import lesson_spec, save_lesson
from looks import violations
from pages import PATIENCE, Seen, Served, until

SIZES = [(390, 844), (720, 450), (768, 1024), (1024, 768), (1440, 900), (1920, 1080), (2560, 1440)]
LAPTOP = (1440, 900)
FOCUSED = """() => { let at = document.activeElement
  while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement
  return at?.getAttribute("aria-label") || at?.textContent || "" }"""
TOUCHED = """() => Bokeh.documents.at(-1).roots().flatMap((figure) => {
  const views = [...Bokeh.index.find_one(figure).renderer_views.values()].filter(({ glyph }) => glyph)
  const words = views.find(({ model }) => model.data_source.name === "labels")?.glyph
  const boxes = [...(words?.swidth ?? [])].map((wide, i) => {  // as they are painted, less half a pixel
    const high = words.sheight[i], anchor = words.anchor_.get(i)
    const left = words.sx[i] + words.x_offset.get(i) - anchor.x * wide
    const top = words.sy[i] + words.y_offset.get(i) - anchor.y * high
    const [right, bottom] = [left + wide - 0.5, top + high - 0.5]
    return { text: words.text.get(i), left: left + 0.5, top: top + 0.5, right, bottom }
  })
  const marks = views.flatMap(({ model, glyph: { model: { type, size }, sx, sy } }) => {
    const { name } = model.data_source, radius = type === "Scatter" ? size.value / 2 : 1
    if (!["Scatter", "Line"].includes(type) || name === "zero") return []
    return [...sx].flatMap((x, i) => {
      const steps = type === "Line" && i > 0 ? Math.ceil(Math.hypot(x - sx[i - 1], sy[i] - sy[i - 1])) || 1 : 1
      const [x0, y0] = [sx[i - 1] ?? x, sy[i - 1] ?? sy[i]], mix = (from, to, k) => from + (k / steps) * (to - from)
      return Array.from({ length: steps }, (_, k) => ({ name, radius, x: mix(x, x0, k), y: mix(sy[i], y0, k) }))
    })
  })
  return boxes.flatMap((box, i) => [
    ...boxes.slice(0, i).filter((other) => box.left < other.right && other.left < box.right &&
      box.top < other.bottom && other.top < box.bottom).map(({ text }) => text),
    ...new Set(marks.filter(({ x, y, radius }) => x > box.left - radius && x < box.right + radius &&
      y > box.top - radius && y < box.bottom + radius).map(({ name }) => name)),
  ].map((other) => [box.text, other]))
})"""  # labels that cover a line, a dot or another label
DOT = """() => Bokeh.documents.at(-1).roots().flatMap((figure) => {
  const view = Bokeh.index.find_one(figure), { ctx, pixel_ratio: ratio } = view.canvas_view.primary
  const now = [...view.renderer_views.values()].find(({ model }) => model.data_source?.name === "now")?.glyph
  if (!now) return []
  const out = 0.4 * now.model.size.value
  const painted = (dx, dy) => [...ctx.getImageData((now.sx[0] + dx) * ratio, (now.sy[0] + dy) * ratio, 1, 1).data]
  return [[out, 0], [-out, 0], [0, out], [0, -out]].map(([dx, dy]) => (  // a border is smooth
    painted(dx, dy).every((value, k) => Math.abs(value - painted(0, 0)[k]) < 25)))
})"""  # whether the large dot has its colour at the right, at the left, below and above
WORDS = """() => Bokeh.documents.at(-1).roots().flatMap((figure) =>
  figure.renderers.find((renderer) => renderer.data_source.name === "labels")?.data_source.data.text ?? [])"""
LANDSCAPE_ENDS = """() => Bokeh.documents.at(-1).roots().filter((figure) =>
  figure.renderers.some((renderer) => renderer.data_source.name === "landscape"))
  .flatMap((figure) => [figure.y_range.start, figure.y_range.end])"""
BEYOND = """() => Bokeh.documents.at(-1).roots().flatMap((figure) => {
  const { frame } = Bokeh.index.find_one(figure), { bbox, x_scale } = frame
  const words = figure.renderers.find((renderer) => renderer.data_source.name === "labels")?.data_source.data
  return (words?.text ?? []).filter((text, i) => {
    const left = x_scale.compute(words.x[i]) + words.dx[i], wide = 6 * text.length
    const from = left - wide * ({ left: 0, right: 1 }[words.align[i]] ?? 0.5)
    return from < bbox.left || from + wide > bbox.right + 2
  })
})"""  # labels that do not fit into their frame in its width
PLACES = """() => Bokeh.documents.at(-1).roots().map((figure) => {
  const labels = figure.renderers.find((renderer) => renderer.data_source.name === "labels")?.data_source.data
  return labels ? [labels.x, labels.dx, labels.dy, labels.align] : []
})"""  # where the words of each picture lie
FRAMES = """() => [...Bokeh.documents.at(-1).roots()].map((figure) => {
  const view = Bokeh.index.find_one(figure), box = view.el.getBoundingClientRect(), { bbox } = view.frame
  const words = figure.renderers.find((renderer) => renderer.data_source.name === "labels")?.data_source.data
  const cut = words ? words.text.filter((_, i) => {  // half a line of text above and below the middle of a label
    const y = view.frame.y_scale.compute(words.y[i]) + words.dy[i]
    return y - 7 < bbox.top || y + 7 > bbox.bottom
  }) : []
  const axis = figure.x_range === Bokeh.documents.at(-1).roots()[0].x_range ? "x" : "swap"
  return { axis, cut, start: box.left + bbox.left, end: box.left + bbox.right }
})"""  # the frame of each figure in the window, and its labels that do not fit into it

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def screen(served: Served, browser: Browser):
    """One page on the first screen for the tests of this file, which return it to its first frame."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.sent = []  # what goes to the server
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: page.sent.append(frame)))  # noqa: PLW0108
    seen = Seen(page, served.url, "?page=first")
    page.locator("[data-ready=yes]").wait_for(timeout=PATIENCE)
    yield seen
    assert seen.complaints == []
    assert seen.elsewhere == []
    page.close()


def number(page: Page) -> float:
    return float(page.locator(".number b").inner_text())


def frame(page: Page) -> int:
    return int(page.locator("output").inner_text().removeprefix("swap "))


def go_to(page: Page, k: int) -> None:
    page.locator("input[type=range]").fill(str(k))


def test_play_reaches_the_last_swap_and_sends_nothing(screen: Seen):
    page = screen.page
    go_to(page, 0)
    page.wait_for_timeout(1500)  # what the page itself sends when it is loaded
    begun, sent = number(page), len(page.sent)

    page.get_by_role("button", name="Play", exact=True).click()
    until(lambda: number(page) < 0.8 * begun)
    page.emulate_media(reduced_motion="reduce")  # each further swap would be drawn sixty times per second
    until(lambda: frame(page) == 12)
    page.emulate_media(reduced_motion="no-preference")

    assert number(page) < 0.1 * begun
    assert "can do no more. Try twelve." in page.locator(".say").inner_text()
    until(lambda: page.locator(".play").inner_text() == "Play")
    assert len(page.sent) == sent
    assert "no further swap" in page.evaluate(WORDS)  # in the landscape, whose axis is that of the swap before
    assert page.evaluate(LANDSCAPE_ENDS) != [-1, 1]


def test_playback_stays_where_it_is_while_it_plays(screen: Seen):
    page = screen.page
    for width, height in ((1440, 900), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        go_to(page, 0)
        parts = page.locator(".transport > *")
        places = [part.bounding_box() for part in parts.all()]
        page.get_by_role("button", name="Play", exact=True).click()
        until(lambda: page.locator(".play").inner_text() == "Pause")
        assert [part.bounding_box() for part in parts.all()] == places
        page.get_by_role("button", name="Pause", exact=True).click()
    page.set_viewport_size({"width": 1440, "height": 900})


def test_keys_step_and_return(screen: Seen):
    page = screen.page
    go_to(page, 0)
    page.mouse.click(700, 20)  # the bar, so that no control has the focus

    page.keyboard.press("ArrowRight")

    until(lambda: frame(page) == 1)
    page.keyboard.press("r")
    until(lambda: frame(page) == 0)


def test_arrow_keys_on_the_number_add_up_and_it_keeps_the_focus(screen: Seen):
    page = screen.page
    go_to(page, 0)
    token, before, asked = page.locator(".say .token"), number(page), len(screen.page.sent)
    token.focus()

    for key in ("ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)

    assert token.inner_text() == "Twelve"
    until(lambda: number(page) != before)
    assert page.evaluate(FOCUSED) == "Twelve"
    assert sum('"points"' in str(message) for message in page.sent[asked:]) == 1
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
    until(lambda: number(page) == before)
    assert page.evaluate(FOCUSED) == "Ten"


def test_few_words_few_things_to_press_and_ten_swaps_that_do_nearly_everything(screen: Seen):
    page = screen.page
    for width, height in first_view.SIZES[::-1]:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(300)

        rows = first_view.measured_view(page, f"{width}")

        assert [row for row in rows if not row.held] == []
        share, controls, words, pixels = (int(row.measured.split()[0]) for row in rows)
        assert share < 100
        assert controls >= 10  # three links, the theme, the number of points, and playback
        assert words > 30
        assert pixels > 100


def test_a_click_forces_a_swap_and_u_takes_it_back(screen: Seen):
    page = screen.page
    go_to(page, 4)
    before = number(page)
    box = page.locator(".picture.landscape").bounding_box()

    page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 40)

    until(lambda: frame(page) == 5)
    assert number(page) != before
    page.keyboard.press("u")
    until(lambda: frame(page) == 4)
    assert number(page) == before


def test_a_dragged_point_moves(screen: Seen):
    page = screen.page
    go_to(page, 0)
    before = number(page)
    box = page.locator(".picture.points").bounding_box()
    page.mouse.move(box["x"] + 95, box["y"] + 14)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 14, steps=4)
    page.mouse.up()

    until(lambda: frame(page) == 1)
    assert number(page) != before
    page.keyboard.press("u")
    until(lambda: frame(page) == 0)


@pytest.mark.parametrize(("theme", "sizes"), [("light", SIZES), ("dark", [LAPTOP])])
def test_no_size_scrolls_sideways_or_cuts_a_control_and_axe_finds_nothing(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, theme: str, sizes: list[tuple[int, int]]
):
    """At one size in the dark theme, which changes colours only."""
    run = lesson_spec(10).open()
    run.finish()
    file = save_lesson(run, tmp_path_factory.mktemp("lesson") / "lesson.html")
    page = browser.new_page(color_scheme=theme)
    seen = Seen(page, Path(file).as_uri(), "?page=first")
    page.locator("[data-ready=yes]").wait_for(timeout=PATIENCE)
    assert page.locator(".lesson").get_attribute("data-theme") == theme
    go_to(page, 5)
    for width, height in sizes:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for control in page.locator("main button:visible, main input:visible").all():
            box = control.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert box["y"] + box["height"] <= height
        figures = page.evaluate(FRAMES)
        assert [figure["cut"] for figure in figures] == [[]] * 4
        left = [figure for figure in figures if figure["axis"] == "x"]
        assert len(left) == 3
        for edge in ("start", "end"):
            assert max(figure[edge] for figure in left) - min(figure[edge] for figure in left) <= 1
    if theme == "light":
        check_words(page)
    assert violations(page) == []
    assert [line for line in seen.complaints if "favicon" not in line] == []
    page.close()


def check_words(page: Page) -> None:
    """The words find their places anew when only the width changes, and cover nothing."""
    for width in (1180, 900, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(1000)
        placed = page.evaluate(PLACES)
        go_to(page, 4)
        go_to(page, 5)
        assert page.evaluate(PLACES) == placed, width
    for width, height in (LAPTOP, (720, 450), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(1000)
        for swap in (
            0,
            1,
            2,
            5,
            7,
            8,
            12,
        ):  # a tested row at the top, on a slope, on the level; the end
            go_to(page, swap)
            assert page.evaluate(TOUCHED) == [], (width, swap)
            assert page.evaluate(BEYOND) == [], (width, swap)  # no word is cut off
            words = " ".join(page.evaluate(WORDS))
            assert words.count("exact model") == 2, (
                width,
                swap,
            )  # beside its curve, and beside the level of distance 0
            assert swap == 12 or "tested" in words, (width, swap)
            if width == LAPTOP[0] and swap < 12:
                assert "predicted from five pivots" in words, swap
        assert page.evaluate(DOT) == [True] * 4, width  # also in the last swap, on the edge of the frame


def test_the_served_screen_passes_axe(screen: Seen):
    assert violations(screen.page) == []


def test_play_is_reached_with_five_tab_stops_and_reduced_motion_jumps_and_the_laboratory_is_remembered(
    served: Served, browser: Browser
):
    page = browser.new_page(reduced_motion="reduce")
    seen = Seen(page, served.url, "?page=first")
    page.locator("[data-ready=yes]").wait_for(timeout=PATIENCE)

    stops = []
    for _ in range(5):
        page.keyboard.press("Tab")
        stops.append(page.evaluate(FOCUSED).strip())
    assert stops[0] == "Skip to Play"
    assert "Play" in stops
    page.get_by_role("button", name="One swap", exact=True).click()
    assert frame(page) == 1

    page.get_by_role("link", name="Laboratory").click()
    page.wait_for_url("**page=laboratory", wait_until="commit")
    page.goto(served.url, wait_until="commit")  # what follows waits for the page itself; no laboratory is loaded whole
    page.wait_for_url("**page=laboratory", wait_until="commit")
    # From here on, the plain address is the first screen again.
    page.goto(served.url + "?page=first", wait_until="commit")
    page.locator("[data-ready=yes]").wait_for(timeout=PATIENCE)
    page.goto(served.url, wait_until="commit")
    page.locator("[data-ready=yes]").wait_for(timeout=PATIENCE)
    page.get_by_role("link", name="Laboratory").click()
    page.wait_for_url("**page=laboratory", wait_until="commit")
    page.go_back()  # to the plain address, which does not lead on to the laboratory again
    page.locator("[data-ready=yes]").wait_for(timeout=PATIENCE)
    assert page.evaluate("location.search") == ""
    assert seen.complaints == []
    page.close()
