"""Callbacks of a page: changes that leave together or under the lock, repeated calls, and objects that may be freed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import panel as pn
from bokeh.document import Document
from param.parameterized import resolve_ref, resolve_value


@contextmanager
def together() -> Iterator[None]:
    """Hold all changes made inside the block on this session's page, and send them in order when the block ends.

    Panel sends its own changes at once or a little later; changes made on Bokeh's models wait until the callback ends.
    On a busy machine one kind can overtake the other: the browser receives a reference to a model that it does not know
    yet, or the last picture is sent only after the next click.
    """
    doc = pn.state.curdoc
    if doc is None or doc.session_context is None or doc.callbacks.hold_value:
        yield
        return
    doc.hold("combine")
    try:
        yield
    finally:
        doc.unhold()


def change(document: Document | None, act: Callable[[], None]) -> None:
    """Make a change as soon as the document is locked; at once where no server holds it, and never once it is closed.

    A coroutine of a page continues without the lock after an `await`. Changes that it makes then are sent separately
    from those of the page's other callbacks, and some of them were lost.

    Parameters
    ----------
    document : Document or None
        The document of the page, as `panel.state.curdoc` was before the work began; None outside a page.
    act : callable
        Makes the change.
    """
    context = None if document is None else document.session_context
    if document is None or context is None:
        act()
    elif not context.destroyed:
        document.add_next_tick_callback(act)


def repeat(function: Callable[[], None], period: int) -> Callable[[], None]:
    """Call a function again and again while its document is locked, for as long as the page lives.

    Panel's periodic callbacks mark the whole process as busy and as idle again around every call, which takes a
    millisecond: a third of a processor with 20 pages. Bokeh's own take a tenth of it.

    Parameters
    ----------
    function : callable
        What to call. An exception of it is written to the log.
    period : int
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


def follow(owner: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return the present values of references, and set these parameters of their owner whenever the references change.

    Parameters of Param forget a reference once they are set. A position that a person sets, and that moves while a run
    plays, has to be set by both.

    Parameters
    ----------
    owner : Parameterized
        The object.
    values : dict of str to object
        Name of each parameter -> a widget, a parameter, an expression, a bound function, or a value as it is.
    """
    for name, value in values.items():
        if resolve_ref(value):
            pn.bind(partial(setattr, owner, name), value, watch=True)
    return {name: resolve_value(value) for name, value in values.items()}


def weakly(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a bound method as a callback that does nothing once its object has been freed: figures outlive pages."""
    reference = weakref.WeakMethod(method)

    def call(event: Any) -> None:
        live_method = reference()
        if live_method is not None:
            live_method(event)

    return call
