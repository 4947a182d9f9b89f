"""What `benchmarks page` measures in a browser, with few repetitions: one message per picture, which follows."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from playwright.sync_api import Browser

from benchmarks.page.in_chromium import (
    Messages,
    answers_while_playing,
    changes_while_playing,
    end_of_closed_run,
    messages_while_playing,
    opened,
    play,
)
from pages import Served

pytestmark = pytest.mark.ui
SETTLED = 6  # pictures until all of the first screen is drawn
MOST_BYTES = 30_000  # 16 to 18 kB were measured, and 54 kB when every layer was sent whole


def test_a_picture_is_one_message_and_a_changed_setting_is_drawn_while_a_run_plays(served: Served, browser: Browser):
    server = SimpleNamespace(address=f"localhost:{served.port}", computing=served.playing)
    messages = Messages()
    page, seconds = opened(browser, server, messages.count)
    play(page)
    while messages.pictures < SETTLED:
        page.wait_for_timeout(200)

    number, size = messages_while_playing(page, messages, 3.0)
    assert messages.pictures >= 2
    assert -1 <= messages.changes - messages.pictures <= 2  # the counts may begin between the frames of one message
    assert messages.bytes <= MOST_BYTES * (messages.pictures + 1)
    assert re.match(r"\d+ per second", number.measured)
    assert re.match(r"\d+ kB per second", size.measured)

    changes = changes_while_playing(page, 2)
    answers = answers_while_playing(page, 2)
    assert 0 < float(changes.measured.split()[1]) < 30
    assert 0 < float(answers.measured.split()[1]) < 30
    page.close()
    assert end_of_closed_run(server).measured.endswith(" s")
    assert served.playing() == 0
    assert seconds > 0
