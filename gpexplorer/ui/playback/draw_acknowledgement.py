"""The browser acknowledges each frame once it has drawn it; the page sends the next one only then.

Without this, a browser that draws three frames per second is sent ten, and a click waits behind all that queue up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import panel as pn
import param
from panel.custom import JSComponent

PATIENCE = 1.0  # seconds after which an answer is no longer waited for: a tab in the background does not draw


class Pulse(JSComponent):
    """An invisible component that asks the browser when it has drawn a frame, and hears the answer.

    `Explorer` calls `send` after the changes of a frame and sends no further frame before `free` is true.

    Parameters
    ----------
    on_drawn
        Called when the browser has drawn all that was sent, so that a frame that waits leaves at once.
    """

    beat = param.Integer(0, doc="Number of frames sent; the browser answers with it when it has drawn.")

    _esm = """
    export function render({ model, el }) {
      el.style.display = "none"
      model.on("beat", () => requestAnimationFrame(() => setTimeout(() => model.send_msg(model.beat), 0)))
    }
    """

    def __init__(self, on_drawn: Callable[[], object], **params: Any) -> None:
        super().__init__(**params)
        self._on_drawn = on_drawn
        self._acknowledged, self._sent_at = 0, 0.0

    @property
    def free(self) -> bool:
        """Whether the browser has drawn the last frame, or has not answered within `PATIENCE` seconds."""
        return self._acknowledged >= self.beat or time.monotonic() - self._sent_at > PATIENCE

    def send(self) -> None:
        """Ask for an answer once all changes made so far are drawn."""
        self._sent_at = time.monotonic()
        self.beat += 1

    def _handle_msg(self, msg: Any) -> None:
        if isinstance(msg, int | float) and not isinstance(msg, bool) and msg <= self.beat:
            self._acknowledged = max(self._acknowledged, int(msg))
            if self._acknowledged == self.beat:
                pn.state.execute(self._on_drawn, schedule=True)  # a message is heard without the document's lock
