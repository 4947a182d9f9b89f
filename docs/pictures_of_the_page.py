"""Makes the pictures of the README from the page itself: `python docs/pictures_of_the_page.py`.

apps/explorer.png is the first screen after some steps. apps/explorer.gif shows the same run swap by swap. Pillow and
Playwright are needed; `make test` installs both.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image

from benchmarks.hammer.served_page import served_page
from benchmarks.page.chromium import chromium

APPS = Path(__file__).resolve().parent.parent / "apps"
SIZE = {"width": 1440, "height": 900}
FRAMES, WIDTH, COLOURS, MILLISECONDS = 24, 900, 128, 350
PATIENCE = 60_000  # milliseconds


def main() -> None:
    """Play a run in a browser, and keep what it shows."""
    with tempfile.TemporaryDirectory() as folder, served_page(Path(folder)) as served, chromium() as browser:
        page = browser.new_page(viewport=SIZE)
        page.goto(f"http://{served.address}/explorer", timeout=PATIENCE)
        page.locator("canvas").first.wait_for(timeout=PATIENCE)
        page.get_by_role("button", name="Leave").click()  # the tour
        page.mouse.click(5, SIZE["height"] - 5)  # so that the arrow keys reach the page
        page.wait_for_timeout(3000)
        frames = []
        for _ in range(FRAMES):
            frames.append(Image.open(io.BytesIO(page.screenshot())))
            page.keyboard.press("ArrowRight")
            page.wait_for_timeout(400)
        page.screenshot(path=APPS / "explorer.png")
    small = [frame.convert("RGB").resize((WIDTH, WIDTH * frame.height // frame.width)) for frame in frames]
    palette = small[-1].quantize(COLOURS)
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small]
    first.save(APPS / "explorer.gif", save_all=True, append_images=others, duration=MILLISECONDS, loop=0, optimize=True)


if __name__ == "__main__":
    main()
