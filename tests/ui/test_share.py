"""A link brings a screen back, says what it put right, and the program beside it gives the number on the screen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from ui.pages import Seen, until

pytestmark = pytest.mark.ui

ASKED = "?v=1&data=sin-product&set.num_inducing=7&set.num_pivots=-3&seed=4&at=9&view=terms&nonsense=%3Cb%3E1"


def test_a_link_opens_its_screen_and_its_program_prints_the_number(open_page: Callable[..., Seen]):
    seen = open_page(query=ASKED)
    until(lambda: seen.step == 9)

    assert "num_pivots is -3; give a whole number of at least 1" in seen.alert()
    assert seen.page.get_by_role("tab", selected=True).inner_text().upper() == "OBJECTIVE, TERM BY TERM"
    assert len(seen.inducing()) == 7

    seen.page.get_by_text("Link, code and files").click()
    field = seen.page.get_by_label("Link to this screen")
    until(lambda: "seed=4" in field.input_value() and "at=9" in field.input_value())
    code = seen.page.get_by_text("import gpexplorer as gpx").inner_text()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(seen.number("SMSE"), rel=1e-3)

    again = open_page(query="?" + field.input_value().partition("?")[2])
    until(lambda: again.step == 9)
    assert again.number("SMSE") == seen.number("SMSE")
    assert again.number("objective") == seen.number("objective")
