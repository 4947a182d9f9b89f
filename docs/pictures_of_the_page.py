"""Makes the pictures of the README from the first screen: `python docs/pictures_of_the_page.py`.

apps/explorer.png is the first screen after five swaps, and apps/explorer.gif plays it. Pillow and Playwright are
needed; `make test` installs both.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image

from benchmarks.page.chromium import chromium
from gpexplorer.views.screens.lesson_page import SWAPS, lesson_spec, save_lesson

APPS = Path(__file__).resolve().parent.parent / "apps"
SIZE = {"width": 1440, "height": 900}
SHOWN, WIDTH, COLOURS, MILLISECONDS = 5, 900, 128, 90
PATIENCE = 60_000  # milliseconds
SECONDS = 1.25  # per swap


def main() -> None:
    """Play the first screen in a browser, and keep what it shows."""
    run = lesson_spec(10).open()
    run.finish()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        file = save_lesson(run, Path(folder) / "first-screen.html")
        page = browser.new_page(viewport=SIZE)
        page.clock.install()
        page.goto(file.as_uri(), timeout=PATIENCE)
        page.locator("[data-ready=yes]").wait_for(timeout=PATIENCE)
        page.clock.pause_at(page.evaluate("Date.now()") + 1000)
        page.get_by_role("button", name="Play", exact=True).click()
        frames = []
        for _ in range(round(SWAPS * SECONDS * 1000 / MILLISECONDS)):
            frames.append(Image.open(io.BytesIO(page.screenshot())))
            page.clock.run_for(MILLISECONDS)
        page.locator("input[type=range]").fill(str(SHOWN))
        page.clock.run_for(1000)  # the figures are painted when the browser's clock moves
        page.screenshot(path=APPS / "explorer.png")
    small = [frame.convert("RGB").resize((WIDTH, WIDTH * frame.height // frame.width)) for frame in frames]
    palette = small[len(small) // 3].quantize(COLOURS)
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small]
    first.save(APPS / "explorer.gif", save_all=True, append_images=others, duration=MILLISECONDS, loop=0, optimize=True)


if __name__ == "__main__":
    main()
