"""The styles of the page: its theme, and the layout of its cards for every width of the screen.

Widths below are those of the main area, not of the window, as the sidebar may be open or closed.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any, Protocol

FONT = "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
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


def _header(paper: str, words: str, name: str) -> dict[str, Any]:
    """The title bar in the colour of the page, with a hairline under it: the only colour is that of the name."""
    bar = {
        "backgroundColor": paper,
        "backgroundImage": "none",
        "color": words,
        "boxShadow": "none",
        "borderBottom": "1px solid rgba(127, 140, 153, .35)",
        "& .title": {"color": f"{name} !important"},
    }
    return {"MuiAppBar": {"styleOverrides": {"root": bar, "colorPrimary": bar}}}


THEME = {
    "light": {
        "palette": {
            "primary": {"main": "#0b6e99"},
            "default": {"dark": "#454c54"},  # of a button under the pointer; the grey of Material is too faint there
            "background": {"default": "#ffffff", "paper": "#ffffff"},
        },
        **_COMMON,
        "components": _COMMON["components"] | _header("#ffffff", "#22303c", "#0b6e99"),
    },
    "dark": {
        "palette": {
            "primary": {"main": "#5cc2ee"},
            "default": {"main": "#dfe6ec", "contrastText": "#14181d"},  # buttons; the grey of Material looks disabled
            "background": {"default": "#14181d", "paper": "#1c2229"},
        },
        **_COMMON,
        "components": _COMMON["components"] | _header("#14181d", "#e4eaef", "#5cc2ee"),
    },
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


# Until a page answers, Panel lays a dark veil with a large wheel over the pictures that are there already.
PAGE = """
body { overflow-x: hidden; }
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
CARDS = """
:host { display: grid !important; gap: 10px; height: auto !important; max-height: none !important;
        grid-template: "prediction hero course" minmax(clamp(380px, 100vh - 236px, 20vw + 320px), auto)
                       / minmax(0, 1.25fr) minmax(0, 1.15fr) minmax(0, 1fr); }
:host(.stacked) { grid-template: "prediction course" minmax(clamp(300px, 54vh - 120px, 640px), auto)
                                 "hero course" minmax(clamp(250px, 46vh - 116px, 520px), auto)
                                 / minmax(0, 1.9fr) minmax(0, 1fr); }
.prediction { grid-area: prediction; } .hero { grid-area: hero; } .course { grid-area: course; }
@container (max-width: 999px) {
  :host(.stacked) { grid-template: "prediction" minmax(clamp(300px, 50vh - 120px, 520px), auto)
                                   "hero" minmax(clamp(250px, 40vh - 100px, 420px), auto)
                                   "course" minmax(300px, auto) / minmax(0, 1fr); }
  :host(:not(.stacked)) { grid-template: "prediction hero" minmax(clamp(400px, 100vh - 280px, 620px), auto)
                                         "course course" minmax(340px, auto) / minmax(0, 1fr) minmax(0, 1fr); }
}
@container (max-width: 639px) {
  :host, :host(.stacked), :host(:not(.stacked)) { grid-template: none / minmax(0, 1fr);
          grid-auto-rows: minmax(clamp(360px, 100vh - 420px, 440px), auto); }
  .prediction, .hero, .course { grid-area: auto; } .hero { order: -1; } .asked { order: -2; }
}
"""
CARD = """
:host { border: 1px solid rgba(127, 140, 153, .35); border-radius: 8px; padding-bottom: 6px; box-sizing: border-box;
        height: auto !important; max-height: none !important; align-self: stretch; position: relative; }
.has-options::after { content: "⋯"; position: absolute; top: -4px; right: 0; font-size: 18px; opacity: .7; }
.corner { position: absolute !important; top: 3px; right: 3px; z-index: 0; width: auto !important;
          max-width: calc(100% - 6px);
          opacity: 0; border-radius: 8px; background: var(--mui-palette-background-paper, #fff);
          box-shadow: 0 4px 18px rgba(0, 0, 0, .25); }
.corner:hover, .corner:focus-within { opacity: 1; z-index: 3; }
@media (hover: none) { .corner { position: relative !important; right: 0; opacity: 1; box-shadow: none; } }
.place { position: relative; z-index: 1; flex: 1 1 auto !important; height: auto;
         min-height: clamp(230px, 34vh, 520px); }
@media (hover: none) { .place { min-height: clamp(230px, 42vh, 520px); } }
:host(.stacked) .place { min-height: 190px; }
"""

TABS = {
    "& .MuiTabs-root": {"minHeight": "0"},
    "& .MuiTabs-scroller": {"overflow": "visible !important", "whiteSpace": "normal"},
    "& .MuiTabs-list, & .MuiTabs-flexContainer": {"flexWrap": "wrap", "gap": "4px"},
    "& .MuiTabs-indicator": {"display": "none"},
    "& .MuiTabScrollButton-root": {"display": "none"},
    "& .MuiTab-root": {"minHeight": "32px", "padding": "4px 12px", "borderRadius": "16px", "fontSize": "0.875rem"},
    "& .MuiTab-root.Mui-selected": {"border": "1px solid currentColor"},
}

# The tooltip of a button opens above it: at its side it would cover the next button, and below it the numbers of the
# run, which change while the mouse rests on Play or on the button of a step.
TOOLTIP = """
.MuiTooltip-popper { translate: calc(-50% - 32px) -34px; pointer-events: none; }
.MuiTooltip-tooltip { white-space: nowrap; max-width: none; }
.MuiTooltip-arrow { display: none; }
"""
