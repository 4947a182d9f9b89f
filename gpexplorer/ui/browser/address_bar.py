"""The address in the browser follows what is open on the page, and its Back button returns to what was open before."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import param
from panel.custom import JSComponent

LONGEST_QUERY = 5000  # characters of a query that a browser sends
MERGE_SECONDS = 2.0  # changes within this time of an entry of the history, as of a slider, add no further entry


class AddressBar(JSComponent):
    """An invisible component that shows a query in the address bar without loading the page again.

    Parameters
    ----------
    go_back
        Called with the query to which a person went by the browser's Back or Forward button.
    **params
        Parameters of `panel.custom.JSComponent`.
    """

    entry = param.List(default=[], doc="The query, and whether it is a new entry of the browser's history.")

    _esm = """
    export function render({ model, el }) {
      el.style.display = "none"
      const show = () => {
        const [query, isNew] = model.entry
        if (query === undefined || query === location.search) return
        history[isNew ? "pushState" : "replaceState"](null, "", location.pathname + query)
      }
      const back = () => model.send_msg(location.search)
      model.on("entry", show)
      show()
      addEventListener("popstate", back)
      model.on("remove", () => removeEventListener("popstate", back))
    }
    """

    def __init__(self, go_back: Callable[[str], None], **params: Any) -> None:
        super().__init__(**params)
        self._query, self._go_back, self._changed_at = "", go_back, float("-inf")

    def show_query(self, query: str, is_new: bool) -> None:
        """Show this query, with its question mark.

        Parameters
        ----------
        query
            Empty for the plain address.
        is_new
            Whether another run is open, to which the Back button should lead from here.
        """
        if query == self._query:
            return
        clock = time.monotonic()
        self.entry = [query, is_new and clock - self._changed_at > MERGE_SECONDS]
        self._query = query
        if is_new:
            self._changed_at = clock

    def _handle_msg(self, msg: Any) -> None:
        if isinstance(msg, str) and len(msg) <= LONGEST_QUERY:
            self._query = msg
            self._go_back(msg)
