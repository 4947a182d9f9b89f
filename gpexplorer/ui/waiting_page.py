"""The page that a visitor sees while his own is being built: the first pictures of its address, and his place.

The pictures are made once per address, when a page of it is built and before a visitor has it, so that nobody changes
what others are shown. They lie where the pictures of the live page will lie, by the same styles. The page has no part
of the address in it: its script loads the same address again once the page is built.

Apart because it is made of pictures and styles, of which the limits of a server (`shared_limits.py`) know nothing.
"""

from __future__ import annotations

import json
import re
import time
from string import Template
from typing import Any

from ..views.picture import image_html
from .gate.waiting_line import COOKIE, place_in_words
from .styles import CARD, CARDS, CARDS_FRAME, DRAWER_BELOW, FONT, TEXT, THEME, beside
from .text import text

MOST = 30  # addresses whose pictures are kept
LARGEST = 400_000  # characters of the pictures of one address
PATIENCE = 1.0  # seconds that the first page of an address waits at most for its pictures
SIZE, WIDE = (400, 400), (800, 270)  # pixels of a picture, which is scaled to its card; of one as wide as two columns
PARTS = {"main": TEXT, ".frame": CARDS_FRAME, ".cards": CARDS, ".picture": CARD}  # place -> styles of the page
OF_HOST = re.compile(r":host\(((?:[^()]|\([^()]*\))*)\)")  # what the host itself must be
STYLES = "".join(OF_HOST.sub(rf"{place}\1", styles).replace(":host", place) for place, styles in PARTS.items())
PAGE = Template(beside(__file__, "waiting_page.html"))


class FirstPictures:
    """What is known of addresses: their words and first pictures, as HTML."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, str]] = {}  # query -> what is above the place of the visitor, and below it
        self._complete: set[str] = set()  # addresses of which all pictures are there

    def __contains__(self, query: str) -> bool:
        return query in self._kept

    def draw(self, query: str, explorer: Any, step: int, has_controls: bool) -> None:
        """Keep the words and the pictures of a page that nobody has seen yet, unless the pictures are known.

        Parameters
        ----------
        query : str
            The part of the address after "?".
        explorer : Explorer
            What is on the page.
        step : int
            The step that the address asks for.
        has_controls : bool
            Whether the page has a sidebar.
        """
        if query in self._complete:
            return
        end = time.monotonic() + (PATIENCE if query not in self._kept else 0.0)
        while not (is_drawn := _is_drawn(explorer, step)) and time.monotonic() < end:
            explorer.update(wait=0.1)
        explorer.session.player.redraw()  # a page is sent a frame after it has arrived, also if all of it is drawn
        if is_drawn:
            self._complete.add(query)
        words = explorer.story.said if explorer.story.story else explorer.title
        styles = "".join(words.stylesheets).replace(":host", "section")
        cards = "".join(
            f'<div class="{" ".join(picture.card.css_classes)}"><h2>{text(picture.view.title)}</h2>'
            f'<span class="hint">{text(picture.view.help)}</span>{_image(picture)}</div>'
            for picture in _on_top(explorer)
        )
        kind = "" if has_controls else "wide"
        heading = f'<main class="{kind}"><style>{styles}</style><section><div>{words.object}</div></section>'
        place = " ".join(explorer.pictures.classes)
        shown = f'<div class="frame"><div class="{place}">{cards if len(cards) < LARGEST else ""}'
        self._kept[query] = heading, shown
        if len(self._kept) > MOST:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._complete.discard(oldest)

    def page(self, query: str, ticket: str, before: int, seconds: float) -> str:
        """Return the waiting page.

        Parameters
        ----------
        query : str
            The part of the address after "?".
        ticket : str
            The ticket of the visitor.
        before, seconds : int, float
            His place.
        """
        place = f'<p id="place" role="status">{place_in_words(before, seconds)}</p>'
        above, below = self._kept.get(query, ("<main>", "<div><div>"))
        palettes = {theme: options["palette"] for theme, options in THEME.items()}
        colours = {f"paper_{theme}": palette["background"]["paper"] for theme, palette in palettes.items()}
        colours |= {f"name_{theme}": palette["primary"]["main"] for theme, palette in palettes.items()}
        look = {"font": FONT, "styles": STYLES, "drawer_below": DRAWER_BELOW}
        content = f"{above}{place}{below}</div></div></main>"
        return PAGE.substitute(colours, **look, cookie=COOKIE, ticket=json.dumps(ticket), content=content)


def _on_top(explorer: Any) -> list[Any]:
    """The cards of the pictures that are always visible: those with a place."""
    return [picture for picture in explorer.pictures.pictures.values() if picture.card.css_classes[1:]]


def _is_drawn(explorer: Any, step: int) -> bool:
    on_top = _on_top(explorer)
    return explorer.at >= step and bool(on_top) and all(picture.layers for picture in on_top)


def _image(picture: Any) -> str:
    svg = picture.svg(*(WIDE if "stacked" in picture.card.css_classes else SIZE))
    return image_html(svg, picture.view.title) if svg else picture.said
