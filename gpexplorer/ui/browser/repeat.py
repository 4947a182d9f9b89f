"""A function that a page calls again and again.

Panel's periodic callbacks mark the whole process as busy and as idle again around every call, which takes a
millisecond. With 20 pages that look for a new frame 17 times per second, that was a third of a processor. Bokeh's own
take a tenth of it.
"""

from __future__ import annotations

from collections.abc import Callable

import panel as pn


def repeat(function: Callable[[], None], period: int) -> Callable[[], None]:
    """Call a function again and again while its document is locked, for as long as the page lives.

    Parameters
    ----------
    function
        What to call. An exception of it is written to the log.
    period
        Milliseconds between two calls.

    Returns
    -------
    callable
        Ends the calls. It may be called more than once, and after the page is closed.
    """
    document = pn.state.curdoc
    if document is None or document.session_context is None:
        callback = pn.state.add_periodic_callback(function, period=period)
        return lambda: callback.stop() if callback.running else None
    added = document.add_periodic_callback(function, period)

    context = document.session_context

    def stop() -> None:
        if not context.destroyed and added in document.session_callbacks:
            document.remove_periodic_callback(added)

    return stop
