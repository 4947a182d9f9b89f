"""The browser acknowledges each frame once it has drawn it; the page sends the next one only then.

Without this, a browser that draws three frames per second is sent ten, and a click waits behind all that queue up.
Where the acknowledgement comes quickly, one more frame may be on its way: otherwise the time that messages travel, to a
cell of a notebook or around the world, would be lost between any two frames.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import panel as pn
import param
from panel.custom import JSComponent

PATIENCE = 1.0  # seconds after which an answer is no longer waited for: a tab in the background does not draw
QUICK = 0.25  # seconds from a frame to its acknowledgement, up to which two frames may be on their way


class Pulse(JSComponent):
    """An invisible component that asks the browser when it has drawn a frame, and hears the answer.

    `Explorer` calls `send` after the changes of a frame and sends no further frame before `free` is true.

    Parameters
    ----------
    on_drawn
        Called when the browser has drawn a frame, so that a frame that waits leaves at once.
    """

    beat = param.Integer(0, doc="Number of frames sent; the browser answers with it when it has drawn.")

    _esm = """
    export function render({ model, el }) {
      el.style.display = "none"
      model.on("beat", () => {
        const beat = model.beat
        requestAnimationFrame(() => setTimeout(() => model.send_msg(beat), 0))
      })
    }
    """

    def __init__(self, on_drawn: Callable[[], object], **params: Any) -> None:
        super().__init__(**params)
        self._on_drawn = on_drawn
        self._acknowledged, self._took = 0, PATIENCE
        self._sent_at = 0.0, 0.0  # of the last frame but one, and of the last

    @property
    def free(self) -> bool:
        """Whether another frame may be sent: the frames before are drawn, or have not been for `PATIENCE` seconds."""
        allowed = 1 if self._took < QUICK else 0
        return self.beat - self._acknowledged <= allowed or time.monotonic() - self._sent_at[1] > PATIENCE

    def send(self) -> None:
        """Ask for an answer once all changes made so far are drawn."""
        self._sent_at = self._sent_at[1], time.monotonic()
        self.beat += 1

    def _handle_msg(self, msg: Any) -> None:
        if isinstance(msg, bool) or not isinstance(msg, int | float) or not self._acknowledged < msg <= self.beat:
            return
        self._acknowledged = int(msg)
        if self.beat - self._acknowledged <= 1:
            self._took = time.monotonic() - self._sent_at[1 - self.beat + self._acknowledged]
            pn.state.execute(self._on_drawn, schedule=True)  # a message is heard without the document's lock
