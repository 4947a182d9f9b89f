"""How the page says that it has drawn what it was sent, so that a slow browser is sent less instead of falling behind.

Without it, ten frames a second queue up in a browser that draws three, and a click waits behind all of them.
"""

from __future__ import annotations

import time
from typing import Any

import param
from panel.custom import JSComponent

PATIENCE = 1.0  # seconds after which an answer is no longer waited for: a tab in the background does not draw


class Pulse(JSComponent):
    """`send` after the changes of a frame; `free` once the browser has drawn them."""

    beat = param.Integer(0, doc="Counts the frames sent; the browser answers with it when it has drawn.")

    _esm = """
    export function render({ model, el }) {
      el.style.display = "none"
      model.on("beat", () => requestAnimationFrame(() => setTimeout(() => model.send_msg(model.beat), 0)))
    }
    """

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._heard, self._sent = 0, 0.0

    @property
    def free(self) -> bool:
        """Whether the browser has drawn the last frame, or takes too long to say so."""
        return self._heard >= self.beat or time.monotonic() - self._sent > PATIENCE

    def send(self) -> None:
        """Ask for an answer once all changes made so far are drawn."""
        self._sent = time.monotonic()
        self.beat += 1

    def _handle_msg(self, msg: Any) -> None:
        if isinstance(msg, int | float) and not isinstance(msg, bool) and msg <= self.beat:
            self._heard = max(self._heard, int(msg))
