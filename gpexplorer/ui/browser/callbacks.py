"""Callbacks of a page: changes that leave together or under the lock, work in a thread, repeated calls, weak ones."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import panel as pn
from bokeh.document import Document
from param.parameterized import resolve_ref, resolve_value

from ..text import sentence


def served_document() -> Document | None:
    """Return the document of the page that a server opens at present; None in a script or a cell."""
    document = pn.state.curdoc
    return document if document is not None and document.session_context is not None else None


def at_end(act: Callable[[], object]) -> None:
    """Call a function when the session of the present page is over, where there is one."""
    if served_document() is not None:
        pn.state.on_session_destroyed(lambda _: act())


@contextmanager
def together() -> Iterator[None]:
    """Hold all changes made inside the block on this session's page, and send them in order when the block ends.

    Panel sends its own changes at once or a little later; changes made on Bokeh's models wait until the callback ends.
    On a busy machine one kind can overtake the other: the browser receives a reference to a model that it does not know
    yet, or the last picture is sent only after the next click.
    """
    doc = served_document()
    if doc is None or doc.callbacks.hold_value:
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


def once_settled(act: Callable[[], object], wait: int) -> Callable[[object], None]:
    """Return a watcher that calls a function at the first event at once, and then after the last of several events.

    What the browser shows ahead of the server is not drawn again then for events that others have followed.

    Parameters
    ----------
    act : callable
        What to call.
    wait : int
        Milliseconds without another event.
    """
    count = 0

    def watch(_: object) -> None:
        nonlocal count
        count += 1
        mine, document = count, served_document()
        if document is None or count == 1:
            act()
        else:
            document.add_timeout_callback(lambda: act() if mine == count else None, wait)

    return watch


async def work_in_thread(
    work: Callable[[], Any], show: Callable[[Any], None], fail: Callable[[str], None], activity: str
) -> None:
    """Compute something in a thread, and show it on the page when it is there.

    Parameters
    ----------
    work : callable
        Computes it.
    show : callable
        Called with the result, as a `change` of the page.
    fail : callable
        Likewise with a sentence, where `work` raises.
    activity : str
        What is going on, as `text.sentence` takes it.
    """
    document = pn.state.curdoc
    try:
        result = await asyncio.to_thread(work)
    except Exception as error:
        message = sentence(error, activity)
        change(document, lambda: fail(message))
    else:
        change(document, lambda: show(result))


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
    document = served_document()
    if document is None:
        callback = pn.state.add_periodic_callback(function, period=period)
        return lambda: callback.stop() if callback.running else None
    added = document.add_periodic_callback(function, period)

    context: Any = document.session_context

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


def weakly(method: Callable[..., None]) -> Callable[..., None]:
    """Return a bound method as a callback that does nothing once its object has been freed: figures outlive pages."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> None:
        live_method = reference()
        if live_method is not None:
            live_method(*arguments)

    return call
