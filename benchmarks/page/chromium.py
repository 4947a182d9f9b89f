"""A Chromium without a window, driven by Playwright: the one of this machine, or the one that Playwright brought."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpexplorer.errors import SettingError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for as long as the block lasts.

    Raises
    ------
    SettingError
        If Playwright is not installed.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise SettingError(
            "Playwright is not installed: pip install playwright, and playwright install chromium."
        ) from None
    path = next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
