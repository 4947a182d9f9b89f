"""A link brings a screen back, says what it put right, and the program beside it gives the number on the screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Download, Locator, Page, expect

from gpexplorer import Spec
from gpexplorer.ui.address import read_query
from gpexplorer.ui.explorer import START
from pages import ON_PAGE, Seen, until

pytestmark = [pytest.mark.ui, pytest.mark.panels]

ASKED = "?v=1&data=sin-product&set.num_inducing=7&set.num_pivots=-3&seed=4&at=9&view=terms&nonsense=%3Cb%3E1"

BACK_TWICE = f"""(queries) => {{
  for (const query of queries) {{
    history.pushState(null, "", location.pathname + query)
    dispatchEvent(new PopStateEvent("popstate"))
  }}
  const bar = {ON_PAGE}.find((model) => model.esm?.includes("popstate")).data
  bar.entry = ["?v=1&at=5", false, (bar.entry[2] ?? 0)]  // what the server wrote before it heard of these
  return location.search
}}"""


def test_a_link_opens_its_screen_and_its_program_prints_the_number(open_page: Callable[..., Seen], tmp_path: Path):
    seen = open_page(query=ASKED)
    until(lambda: seen.step == 9)

    assert "num_pivots is −3; give a whole number of at least 1" in seen.alert()
    expect(seen.page.locator(".hero h2")).to_have_text("Objective, term by term")
    until(lambda: len(seen.inducing()) == 7)

    seen.page.get_by_text("Link, code and files").click()
    check_pictures(seen, tmp_path)
    field = seen.page.get_by_label("Link to this screen")
    until(lambda: "seed=4" in field.input_value() and "at=9" in field.input_value())
    check_address(seen)
    program = seen.page.get_by_text("import gpexplorer as gpx")
    until(lambda: "finish(steps=9)" in program.inner_text())
    code = program.inner_text()
    check_copies(seen, {"Copy the link": field.input_value, "Copy the program": lambda: code})
    printed: list[float] = []
    exec(code.replace("print(", "printed.append("), {"printed": printed})  # test_code.py runs one in a new interpreter
    assert printed[0] == pytest.approx(seen.number("SMSE"), rel=1e-3)


def check_copies(seen: Seen, texts: dict[str, Callable[[], str]]) -> None:
    """Each of these buttons puts its text on the clipboard."""
    seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    seen.page.bring_to_front()
    for name, text in texts.items():
        seen.page.get_by_role("button", name=name).click()
        until(lambda text=text: seen.page.evaluate("navigator.clipboard.readText()").split() == text().split(), 10)


def address(seen: Seen) -> str:
    """The query in the address bar now; `page.url` is brought up to date by other calls only."""
    return str(seen.page.evaluate("location.search"))


def check_address(seen: Seen) -> None:
    """The address follows the run and its step, in few words, and asks for what the link beside it asks for.

    A page that is loaded again reads it as the first time.
    """
    until(lambda: address(seen).endswith("&data=sin-product&seed=4&set.num_inducing=7&view=terms&at=9"))
    link = seen.page.get_by_label("Link to this screen").input_value()
    assert read_query(link.partition("?")[2], Spec(**START)) == read_query(address(seen), Spec(**START))
    assert "?v=1&defaults=" in address(seen)
    seen.press("One step")
    until(lambda: address(seen).endswith("&at=10"))
    asked = read_query(address(seen), Spec(**START)).link
    again = asked.spec.open()
    again.finish(steps=asked.at)
    assert again.scores()["smse"] == pytest.approx(seen.number("SMSE"), rel=1e-3)
    seen.press("Step back")
    until(lambda: address(seen).endswith("&at=9"))


def check_pictures(seen: Seen, folder: Path) -> None:
    """The pictures leave the page as HTML that a browser draws by itself, and as SVG with their words."""
    with seen.page.expect_download() as html:
        seen.page.get_by_role("button", name="pictures.html").click()
    alone = seen.page.context.browser.new_page()
    asked: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    html.value.save_as(folder / "pictures.html")
    alone.goto((folder / "pictures.html").as_uri())
    until(lambda: alone.locator("canvas").count() >= 3)
    assert len(asked) == 1
    said = alone.locator("body").inner_text()
    assert "Does the objective still decrease?" in said
    assert not [words for words in ("Press Play", "can be shown in its place", "Click") if words in said]

    with seen.page.expect_download() as moving:
        seen.page.get_by_role("button", name="Save as a page").click()
    moving.value.save_as(folder / "run.html")
    alone.goto((folder / "run.html").as_uri() + "#step=9")
    until(lambda: alone.locator("dd").first.text_content() == "9")
    assert alone.get_by_role("heading", name="Objective, term by term").count() == 1
    assert len(asked) == 2
    alone.close()

    hero = seen.page.locator(".hero")
    hidden = hero.get_by_role("button", name="complexity")
    hidden.click()
    until(lambda: hidden.get_attribute("aria-pressed") == "false")
    first, terms = saved_picture(seen.page), saved_picture(hero)
    assert ">x2<" in first.path().read_text("utf-8")
    assert first.suggested_filename == "Data-and-prediction-cholqr-step-9.svg"
    assert terms.suggested_filename == "Objective-term-by-term-cholqr-step-9.svg"
    text = terms.path().read_text("utf-8")
    assert all(f">{word}<" in text for word in ("data fit", "complexity", "trace"))
    hidden.click()

    check_size(seen, folder, terms, "Objective, term by term, cholqr, step 9")
    check_size(seen, folder, saved_picture(seen.page.locator(".course")), "Convergence, cholqr, step 9")


SIZES = """() => {
  const right = document.documentElement.getBoundingClientRect().right
  const ends = [...document.querySelectorAll("text")].map((text) => text.getBoundingClientRect().right)
  const plots = [...document.querySelectorAll("clipPath > path")].map((path) => path.getBBox().height)
  return [Math.max(...ends) - right, Math.min(...plots)]
}"""


def check_size(seen: Seen, folder: Path, saved: Download, figure: str) -> None:
    """In a saved picture the plot is as high as on the screen, and no word is cut."""
    saved.save_as(folder / "picture.svg")
    alone = seen.page.context.browser.new_page()
    alone.goto((folder / "picture.svg").as_uri())
    beyond, height = alone.evaluate(SIZES)
    alone.close()
    find = f"(name) => {ON_PAGE}.find((model) => model.type === 'Figure' && model.name === name).inner_height"
    assert height == pytest.approx(seen.page.evaluate(find, figure), abs=2)
    assert beyond <= 0


def saved_picture(place: Page | Locator) -> Download:
    """The file of the first picture of this place."""
    place.locator(".bk-events").first.hover()
    with (place if isinstance(place, Page) else place.page).expect_download() as svg:
        place.get_by_title("Save as SVG").first.click()
    assert svg.value.path().read_text("utf-8").startswith("<svg")
    return svg.value


def test_a_question_is_chosen_and_a_lecture_hides_the_controls(seen: Seen, open_page: Callable[..., Seen]):
    lecture, other = open_page(query="?v=1&ask=all-rows&hide=controls"), seen
    until(lambda: lecture.page.get_by_text("What is lost when every row is an inducing point?").count() == 1)
    assert lecture.page.get_by_label("Method", exact=True).count() == 0
    until(lambda: len(lecture.inducing()) == 54)

    expect(other.page.get_by_label("Method", exact=True)).to_be_attached()
    asked = "An exact GP on a few rows is fast. Can its bands be trusted?"
    other.page.get_by_role("link", name="Stories").click()
    other.page.get_by_role("link", name=asked).click()
    until(lambda: other.page.get_by_text("It uses 15 of the 180 rows").count() == 1)
    until(lambda: other.page.locator(".hero h2").inner_text() == "Calibration")
    other.page.get_by_role("button", name="Play or pause").first.click()
    until(lambda: other.step > 3)
    other.pause()
    until(lambda: "?ask=honest-bands&" in address(other) and address(other).endswith(f"&at={other.step}"))
    other.page.get_by_label("Method", exact=True).select_option("Random rows")
    until(lambda: other.page.get_by_text("It uses 15 of the 180 rows").count() == 0)
    other.page.go_back()
    until(lambda: other.page.get_by_text("It uses 15 of the 180 rows").count() == 1)
    other.page.go_forward()
    until(lambda: other.page.get_by_text("It uses 15 of the 180 rows").count() == 0)


def test_who_goes_back_twice_at_once_is_shown_the_last_address(anywhere: Seen):
    """Also where it is the one that was written last, and where the server writes before it hears of that."""
    seen = anywhere
    seen.visit("?v=1&set.num_inducing=6")
    until(lambda: len(seen.inducing()) == 6)
    written = address(seen)
    other = written.replace("num_inducing=6", "num_inducing=7")
    assert seen.page.evaluate(BACK_TWICE, ["?page=sought&v=1&set.num_inducing=7", f"?page=sought&{written[1:]}"]) == (
        f"?page=sought&{written[1:]}"
    )
    until(lambda: address(seen) == written)

    assert seen.page.evaluate(BACK_TWICE, [written, other]) == other
    until(lambda: len(seen.inducing()) == 7)
    assert address(seen) == other


def test_a_spec_saved_here_is_opened_again_and_a_bad_one_gets_a_sentence(anywhere: Seen):
    seen = anywhere
    seen.visit("?v=1&set.num_inducing=6")
    seen.page.get_by_text("Link, code and files").click()
    seen.page.get_by_role("button", name="spec.json", exact=True).wait_for()
    spec_file = seen.page.locator("input[type=file]").last
    spec_file.set_input_files({"name": "a.json", "mimeType": "application/json", "buffer": b'{"method": "nope"}'})
    until(lambda: seen.page.get_by_text("Method 'nope' is not known").count() == 1)
    until(lambda: seen.page.get_by_text("Uploaded a.json").count() == 1)  # the name is shown by an input made anew

    text = Spec("random", {"num_inducing": 5}, "sin-product", seed=3).to_json().encode()
    spec_file.set_input_files({"name": "b.json", "mimeType": "application/json", "buffer": text})
    until(lambda: seen.page.get_by_label("Seed", exact=True).input_value() == "3")
    until(lambda: seen.page.get_by_text("Which 5 of 360 rows").count() == 1)
