"""How the page looks: one palette for light and dark."""

from __future__ import annotations

ACCENT = "#0b6e99"
THEME = {
    "light": {
        "palette": {"primary": {"main": ACCENT}, "background": {"default": "#f6f8fa", "paper": "#ffffff"}},
        "typography": {"fontFamily": "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"},
        "shape": {"borderRadius": 8},
    },
    "dark": {
        "palette": {"primary": {"main": "#5cc2ee"}, "background": {"default": "#14181d", "paper": "#1c2229"}},
        "typography": {"fontFamily": "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"},
        "shape": {"borderRadius": 8},
    },
}
CSS = "body { overflow-x: hidden; }"


def name(dark: bool) -> str:
    """What views call this theme."""
    return "dark" if dark else "light"
