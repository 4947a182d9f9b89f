"""The styles of the page: its theme, and the layout of its cards for every width of the screen.

Widths below are those of the main area, not of the window, as the sidebar may be open or closed.
"""

from __future__ import annotations

import re
import weakref
from pathlib import Path
from typing import Any, Protocol

FONT = "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
FOCUS = {"outline": "2px solid currentColor", "outlineOffset": "-2px"}
DRAWER_BELOW = 900  # pixels of the window: on a narrower one the sidebar is a drawer over the page
HEADER = 48  # pixels
_COMMON: dict[str, Any] = {
    "typography": {"fontFamily": FONT, "button": {"textTransform": "none"}, "h3": {"fontSize": "1.15rem"}},
    "shape": {"borderRadius": 8},
    "breakpoints": {"values": {"xs": 0, "sm": DRAWER_BELOW, "md": 1100, "lg": 1400, "xl": 1800}},
    "components": {
        "MuiToolbar": {"styleOverrides": {"root": {"minHeight": f"{HEADER}px !important"}}},
        # The - and + of a field of a whole number are dark grey in both themes otherwise.
        "MuiInputBase": {"styleOverrides": {"root": {"& .MuiIconButton-root": {"color": "inherit"}}}},
        # Material shows where the keyboard is by a tint of one eighth; of an upload, its input is focused.
        "MuiButtonBase": {"styleOverrides": {"root": {"&.Mui-focusVisible, &:has(input:focus-visible)": FOCUS}}},
        # Buttons that fade between colours lag behind the page by a quarter of a second when its theme is changed.
        "MuiButton": {
            "styleOverrides": {
                "root": {"transition": "none"},
                "contained": {"@media (forced-colors: active)": {"border": "1px solid"}},
            }
        },
        # A section is drawn before it knows the theme of the system, and would be white behind white words.
        "MuiAccordion": {"styleOverrides": {"root": {"backgroundColor": "transparent"}}},
        "MuiTab": {"styleOverrides": {"root": {"textTransform": "none"}}},
        # The drawer over a narrow page covers the header, so it needs no room for it.
        "MuiDrawer": {
            "styleOverrides": {
                "paper": {f"@media (max-width: {DRAWER_BELOW - 0.05}px)": {"& > .MuiToolbar-root": {"display": "none"}}}
            }
        },
    },
}


def beside(module: str, name: str) -> str:
    """Return the text of a script or a style sheet that lies beside a module, given the module's `__file__`."""
    return Path(module).with_name(name).read_text("utf-8")


# The button of the theme shows the theme that it brings, as on the other screens; Material shows the present one.
SHELL = Path(__file__).parents[1] / "views" / "screens" / "page_shell.js"
ICONS = dict(re.findall(r'(light|dark): "(.+?)"', SHELL.read_text("utf-8")))


def _theme(name: str, inks: dict[str, str], page: str, paper: str, buttons: dict[str, str]) -> dict[str, Any]:
    """A theme whose title bar has the colour of the page and a hairline: the only colour is that of the name."""
    bar = {
        "backgroundColor": page,
        "backgroundImage": "none",
        "color": inks["words"],
        "boxShadow": "none",
        "borderBottom": "1px solid rgba(127, 140, 153, .35)",
        "& .title": {
            "color": f"{inks['primary']} !important",
            "@media (max-width: 359px)": {"display": "none"},  # as at a zoom of 400 percent
        },
        "& [aria-label='Toggle theme'] path": {"d": f"path('{ICONS[name]}')"},
    }
    components = _COMMON["components"] | {"MuiAppBar": {"styleOverrides": {"root": bar, "colorPrimary": bar}}}
    colours = {ink: {"main": colour} for ink, colour in inks.items()}
    palette = {**colours, "default": buttons, "background": {"default": page, "paper": paper}}
    return {**_COMMON, "palette": palette, "components": components}


LIGHT = {"primary": "#0b6e99", "words": "#22303c", "number": "#d55e00"}
DARK = {"primary": "#5cc2ee", "words": "#e4eaef", "number": "#ff8a3d"}
THEME = {  # of buttons, the grey of Material is too faint under the pointer, and in the dark looks disabled
    "light": _theme("light", LIGHT, "#ffffff", "#ffffff", {"dark": "#454c54"}),
    "dark": _theme("dark", DARK, "#14181d", "#1c2229", {"main": "#dfe6ec", "contrastText": "#14181d"}),
}


class Themed(Protocol):
    """A figure, or anything else that has a light and a dark theme."""

    def set_theme(self, theme: str) -> None:
        """Use the colours of "light" or "dark"."""


class FigureTheme:
    """The theme of the figures of one page. A figure that nothing else refers to is forgotten.

    Parameters
    ----------
    dark : bool, default False
        Whether it is dark at first.

    Attributes
    ----------
    name : str
        "light" or "dark".
    """

    def __init__(self, dark: bool = False) -> None:
        self.name = "dark" if dark else "light"
        self._figures: weakref.WeakSet[Themed] = weakref.WeakSet()

    def add(self, figure: Themed) -> None:
        """Draw a figure for this theme, and again whenever the theme changes."""
        self._figures.add(figure)
        figure.set_theme(self.name)

    def set_dark(self, dark: bool) -> None:
        """Draw all figures for the dark theme, or for the light one."""
        name = "dark" if dark else "light"
        if name != self.name:
            self.name = name
            for figure in list(self._figures):
                figure.set_theme(name)


# Until a page answers, Panel lays a dark veil with a large wheel over the pictures that are there already. In the title
# bar, the paper of the palette is the blue of Material, so what opens from the bar asks for that of the page.
PAGE = """
body { overflow-x: hidden; --page-paper: var(--mui-palette-background-paper); }
#loader:not(.error) { background: none; }
#loader .spinner { position: fixed; top: 56px; width: 20px; height: 20px; border-width: 3px; }
"""

HEAD = """
:host > div { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 14px; }
"""  # question and hint on one line, where there is room

TEXT = """
:host { color: inherit; font-size: 12.5px; line-height: 1.4; }
h1 { font-size: 20px; font-weight: 650; line-height: 1.3; margin: 0; }
h2 { font-size: 15px; font-weight: 600; line-height: 1.35; margin: 0; }
p { font-size: 13.5px; line-height: 1.4; margin: 0; }
.hint { font-size: 12.5px; line-height: 1.4; opacity: .78; }
"""

MAIN = """
:host { padding: 4px 6px 24px; box-sizing: border-box; container-type: inline-size; height: auto !important;
        max-height: none !important; }
:host > * { flex-shrink: 0 !important; max-height: none !important; }
@container (max-width: 639px) { .status { order: 1; } .rest { order: 2; } }
"""

GUEST = ":host { container-type: inline-size; }"
BESIDE = """
:host { max-height: none !important; }
@container (max-width: 899px) { :host { flex-direction: column-reverse !important; } }
"""

FACTS = """
.facts { display: flex; flex-wrap: wrap; gap: 4px 28px; margin: 6px 0; }
.facts b { display: block; font-size: 22px; line-height: 1.25; font-weight: 650; font-variant-numeric: tabular-nums; }
.facts span { font-size: 12.5px; line-height: 1.35; opacity: .8; }
"""  # numbers that are the answer, in large figures

SHEET = """
:host { border: 1px solid rgba(127, 140, 153, .35); border-radius: 8px; padding: 6px 4px; box-sizing: border-box; }
"""  # around what a person is asked, between the heading and the pictures

CARDS_FRAME = (
    ":host { container-type: inline-size; padding: 6px 8px; box-sizing: border-box; max-height: none !important; }"
)
CARDS = beside(__file__, "cards.css")
CARD = beside(__file__, "card.css")

TABS = {
    "& .MuiTabs-root": {"minHeight": "0"},
    "& .MuiTabs-scroller": {"overflow": "visible !important", "whiteSpace": "normal"},
    "& .MuiTabs-list, & .MuiTabs-flexContainer": {"flexWrap": "wrap", "gap": "4px"},
    "& .MuiTabs-indicator": {"display": "none"},
    "& .MuiTabScrollButton-root": {"display": "none"},
    "& .MuiTab-root": {"minHeight": "32px", "padding": "4px 12px", "borderRadius": "16px", "fontSize": "0.875rem"},
    "& .MuiTab-root.Mui-selected": {"border": "1px solid currentColor"},
}

# The tooltip of a button opens above it: at its side it would cover the next button and take its clicks, and below it
# the numbers of the run, which change while the mouse rests on Play or on the button of a step. It is placed at the
# side by the component, which is narrow in between, and moved from there.
TOOLTIP = """
.MuiTooltip-popper { translate: -40% calc(-50% - 22px); pointer-events: none !important; }
.MuiTooltip-popper[data-popper-placement^="left"] { translate: 40% calc(-50% - 22px); }
.MuiTooltip-tooltip { width: max-content; max-width: 260px; }
.MuiTooltip-arrow { display: none; }
:host([pressed]) .MuiTooltip-popper { visibility: hidden; }
"""
TOOLTIP_BELOW = TOOLTIP.replace("calc(-50% - 22px)", "calc(50% + 22px)")
# Those of the title bar end above a message, which begins below it; the page itself has two of them.
TOOLTIP_IN_BAR = TOOLTIP.replace("calc(-50% - 22px)", "calc(50% + 10px)")
PAGE_TOOLTIP = ".MuiTooltip-popper { translate: 0 -24px; pointer-events: none !important; }"
