"""A figure as a file: SVG from the browser that drew it, so that no second program has to draw it again."""

from __future__ import annotations

from typing import Any

from bokeh.models import CustomAction, CustomJS

INK = "rgb(127,140,153)"  # a colour's hash would end the address, and Bokeh quotes what is quoted already
WORD = f"<text x='12' y='16' font-family='sans-serif' font-size='10' text-anchor='middle' fill='{INK}'>SVG</text>"
ICON = f"data:image/svg+xml;utf8,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'>{WORD}</svg>"
SAVE = """
const view = Bokeh.index.find_one(figure)
if (view == null) return
view.export("svg").to_blob().then((blob) => {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = "picture.svg"
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
})
"""


def svg_tool(figure: Any) -> CustomAction:
    """A button of the figure's toolbar beside the one for PNG: what is drawn now, in lines and letters."""
    code = CustomJS(args={"figure": figure}, code=SAVE)
    return CustomAction(description="Save as SVG", icon=ICON, callback=code)
