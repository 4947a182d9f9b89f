"""What a cell shows of an object, and when the objects that a cell showed before are freed."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol

NEEDED = "install gpexplorer[notebook] to see it in this cell"


class Shown(Protocol):
    """An object with a page of its own, which can be closed.

    Attributes
    ----------
    widgets : list
        The widgets that show it.
    """

    widgets: list[Any]

    def close(self) -> None:
        """End all threads of the object."""


class Cells:
    """The objects that the cells of a notebook show now."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[int, list[weakref.ref[Shown]]]] = {}

    def show(self, shown: Shown) -> None:
        """Note that the cell that is running shows this object; what its last run showed is closed."""
        cell, execution = running_cell()
        if not cell:
            return
        last_execution, references = self._shown.get(cell, (0, []))
        if last_execution != execution:
            for earlier in (reference() for reference in references):
                if earlier is not None and earlier is not shown:
                    earlier.close()
            references = []
        self._shown[cell] = (execution, [*references, weakref.ref(shown)])


cells = Cells()


def running_cell() -> tuple[str, int]:
    """Return the id of the cell that is running and how often cells were run; an empty id where it is not known."""
    shell = _shell()
    if shell is None or not hasattr(shell, "get_parent"):
        return "", 0
    metadata = (shell.get_parent() or {}).get("metadata") or {}
    return str(metadata.get("cellId", "")), int(shell.execution_count)


def in_notebook() -> bool:
    """Return whether this process is a kernel with a notebook, a console or the like in front of it."""
    return getattr(_shell(), "kernel", None) is not None


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def mimebundle(shown: Shown, page: Callable[[], Any], title: str, height: int, picture: str = "") -> dict[str, Any]:
    """Return what a cell shows: the live page, and for a saved notebook its picture.

    Parameters
    ----------
    shown : Shown
        The object.
    page : callable
        A bound method of it that builds its page, called for every view.
    title : str
        Name of the page for readers of the screen.
    height : int
        Pixels; 0 for the height of the content.
    picture : str, default ""
        The same as SVG; empty for none.

    Returns
    -------
    dict of str to object
        Media type -> content.
    """
    bundle: dict[str, Any] = {"text/plain": title}
    if picture:
        bundle["image/svg+xml"] = picture
    if not in_notebook():
        return bundle
    try:
        from .relay import Relay
    except ImportError:
        return {"text/plain": f"{title} ({NEEDED})"}
    cells.show(shown)
    relay = Relay(page, title, height)
    shown.widgets.append(relay)
    live = relay._repr_mimebundle_()
    if live is not None:
        bundle.update({kind: content for kind, content in live[0].items() if kind != "text/plain"})
    return bundle
