"""The components written for a page: keys, theme, address, drawn frames, tour, drawer, copying, names of buttons.

Most of them are invisible. The script of each lies beside this file.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, ClassVar

import panel as pn
import param
from bokeh.document import Document
from panel.custom import JSComponent
from panel.theme import DarkTheme

from ...views.drawing.palette import AROUND, ON_DARK
from ..styles import DRAWER_BELOW, TEXT, beside
from .callbacks import change
from .protocol_repairs import send_patches_together

HELP = "Space: play or pause. Left and right arrow: step back or forward. R: reset. S: stop. U: undo. ?: this help."
LONGEST_QUERY = 5000  # characters of a query that a browser sends
MERGE_SECONDS = 2.0  # changes within this time of an entry of the history, as of a slider, add no further entry
PATIENCE = 1.0  # seconds after which an answer is no longer waited for: a tab in the background does not draw
QUICK = 0.25  # seconds from a frame to its acknowledgement, up to which two frames may be on their way


class Heard(JSComponent):
    """A component whose script sends messages. A browser can send anything: only what is accepted is passed on.

    Parameters
    ----------
    on_message : callable
        Called with each message that is accepted.
    **params : object
        Parameters of the component.
    """

    def __init__(self, on_message: Callable[[Any], object], **params: Any) -> None:
        super().__init__(**params)
        self._on_message = on_message

    def _accepts(self, msg: Any) -> bool:
        """Whether this is what the script sends: nothing is, unless a subclass says so."""
        return False

    def _handle_msg(self, msg: Any) -> None:
        if self._accepts(msg):
            self._on_message(msg)


def is_number(msg: Any) -> bool:
    """Return whether a message is a number that is finite: a truth value of JSON is an int of Python."""
    return isinstance(msg, int | float) and not isinstance(msg, bool) and abs(msg) < math.inf


def is_index(msg: Any, count: int) -> bool:
    """Return whether a message is the number of one of so many things."""
    return isinstance(msg, int) and not isinstance(msg, bool) and 0 <= msg < count


class ButtonNames(JSComponent):
    """Names the buttons of number inputs and the bars of progress, which panel-material-ui 0.16 leaves unnamed.

    It repeats because widgets are added later.
    """

    _esm = beside(__file__, "button_names.js")


class PageTheme(JSComponent):
    """An invisible component that makes its page dark where a person wants that, and remembers a choice by hand.

    The browser knows what the operating system is set to; a change of it takes effect at once. Once the button of the
    title bar was pressed, its choice counts in this browser.
    """

    on_dark = param.Dict(ON_DARK, constant=True, doc="Colours of figures in the light theme, and their dark twins.")
    around = param.Dict(AROUND, constant=True, doc="Colours of words, axes, grid and paper, by theme and name.")

    _esm = beside(__file__, "page_theme.js")


class HostTheme(Heard):
    """An invisible component that says whether the page around it is dark, when it is drawn and at every change."""

    _esm = beside(__file__, "host_theme.js")

    def _get_model(self, doc: Document, root: Any = None, parent: Any = None, comm: Any = None) -> Any:
        """Make the model. A template says what it will look like before a browser has drawn it."""
        theme = getattr(pn.state._templates.get(doc), "theme", None)
        if isinstance(theme, type) and issubclass(theme, DarkTheme):
            self._on_message(True)
        return super()._get_model(doc, root, parent, comm)

    def _accepts(self, msg: Any) -> bool:
        return isinstance(msg, bool)

    def _handle_msg(self, msg: Any) -> None:
        handle = super()._handle_msg
        change(pn.state.curdoc, lambda: handle(msg))  # a message arrives without the lock


class Ways(Heard):
    """The ways from the title bar: to Play for keyboards, to the other pages, and to the panels under the pictures.

    On a narrow page they are a menu. A message is the number of the panel that a person asks for.
    """

    pages = param.Dict({}, doc="Labels and addresses of the other pages.")
    tools = param.List(default=[], doc="Titles of the panels; a title begins with its name and a colon.")

    _esm = beside(__file__, "ways.js")
    _stylesheets: ClassVar[list[str]] = [beside(__file__, "ways.css")]

    def _accepts(self, msg: Any) -> bool:
        return is_index(msg, len(self.tools))


class Keys(Heard):
    """Listens for keys unless a person types or moves a control. Notebooks use these keys themselves."""

    _esm = beside(__file__, "keys.js")

    def _accepts(self, msg: Any) -> bool:
        return isinstance(msg, str) and len(msg) <= 16


class AddressBar(JSComponent):
    """An invisible component that shows a query in the address bar without loading the page again.

    Parameters
    ----------
    go_back : callable
        Called with the query to which a person went by the browser's Back or Forward button.
    **params : object
        Parameters of `panel.custom.JSComponent`.
    """

    entry = param.List(
        default=[],
        doc="The query, whether it is a new entry of the browser's history, and how many moves back or forward were "
        "heard of before.",
    )

    _esm = beside(__file__, "address_bar.js")

    def __init__(self, go_back: Callable[[str], None], **params: Any) -> None:
        super().__init__(**params)
        self._query: str | None = ""  # the last one shown; None after a person has gone to another
        self._go_back, self._changed_at, self._heard = go_back, float("-inf"), 0

    def show_query(self, query: str, is_new: bool) -> None:
        """Show this query, with its question mark.

        Parameters
        ----------
        query : str
            Empty for the plain address.
        is_new : bool
            Whether another run is open, to which the Back button should lead from here.
        """
        if query == self._query:
            return
        clock = time.monotonic()
        self.entry = [query, is_new and clock - self._changed_at > MERGE_SECONDS, self._heard]
        self._query = query
        if is_new:
            self._changed_at = clock

    def _handle_msg(self, msg: Any) -> None:
        match msg:
            case [str(query), int(number)]:
                self._query, self._heard = None, number
                if len(query) <= LONGEST_QUERY:
                    self._go_back(query)


class Pulse(JSComponent):
    """An invisible component that asks the browser when it has drawn a frame, and hears the answer.

    Without this, a browser that draws three frames per second is sent ten, and a click waits behind all that queue up.
    Where the acknowledgement comes quickly, one more frame may be on its way: otherwise the time that messages travel,
    to a cell of a notebook or around the world, would be lost between any two frames.

    `Explorer` calls `send` after the changes of a frame and sends no further frame before `free` is true.

    Parameters
    ----------
    on_drawn : callable
        Called when the browser has drawn a frame, so that a frame that waits leaves at once.
    """

    beat = param.Integer(0, doc="Number of frames sent; the browser answers with it when it has drawn.")

    _esm = beside(__file__, "drawn_frames.js")

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
        if not (is_number(msg) and self._acknowledged < msg <= self.beat):
            return
        self._acknowledged = int(msg)
        if self.beat - self._acknowledged <= 1:
            self._took = time.monotonic() - self._sent_at[1 - self.beat + self._acknowledged]
            pn.state.execute(self._on_drawn, schedule=True)  # a message is heard without the document's lock


STEPS = (
    ("Play", "Press Play", "A run advances step by step. You can pause, step back, or drag the bar to any earlier "
     "step. The space bar and the arrow keys do the same."),
    ("Data and prediction", "Look at the data", "Orange triangles are the inducing points. With “Move points” you "
     "can drag one and see how the bound changes. With “Edit rows” a click adds a row."),
    ("Swap landscape", "See why", "Each tab answers one question about the method. In the landscape, a click on a "
     "row forces its swap, and Undo restores the previous points."),
    ("Compare: runs you keep", "Compare", "Keep a run, change one setting, and keep the next run. The panels below "
     "race several methods in equal turns and predict the cost for larger data."),
    ("Link, code and files", "Save and share", "Here are a link that opens this screen, a program that "
     "reproduces its numbers, a notebook, and the pictures as files."),
)  # fmt: skip


class Tour(JSComponent):
    """A tour of the page for those who ask for it: what opens by itself would cover the pictures."""

    steps = param.List(default=[list(step) for step in STEPS], doc="Text to find, title and sentence of each card.")
    begun = param.Integer(0, doc="How often the tour was started on request.")

    _esm = beside(__file__, "tour.js")
    _stylesheets = [beside(__file__, "tour.css")]  # noqa: RUF012 - Panel declares it as a plain list

    def begin(self, _: Any = None) -> None:
        """Start the tour."""
        self.begun += 1


class Drawer(JSComponent):
    """The heading of the drawer with its button; invisible where the sidebar stands beside the page."""

    below = param.Integer(DRAWER_BELOW, constant=True, doc="Width of the window below which it is a drawer.")
    closings = param.Integer(0, doc="How often it was asked to close.")

    def close(self, _event: Any = None) -> None:
        """Close the drawer over a narrow page; a sidebar beside the page stays."""
        self.closings += 1

    _esm = beside(__file__, "drawer.js")
    _stylesheets: ClassVar[list[str]] = [beside(__file__, "drawer.css")]


class CopyButton(JSComponent):
    """A button that puts a text on the clipboard of the person who presses it."""

    copied = param.String("", doc="The text to copy; the button is disabled where it is empty.")
    what = param.String("", doc='What is copied, such as "the link": the button is named after it.')

    # Outside a secure context, as on a page of another machine without TLS, there is no navigator.clipboard.
    _esm = beside(__file__, "copy_button.js")
    _stylesheets: ClassVar[list[str]] = [TEXT, beside(__file__, "copy_button.css")]


class BokehFixes(JSComponent):
    """Workarounds for Bokeh 3.9 and Panel 1.9: figures are measured late, work is done once, no row is lost.

    On a page of our own they are for everything. In the page of a host, those of styles and of layouts are only for
    what lies in a column made by `repaired`. The changes of that page travel together, as on a page of our own.

    Bokeh measures a newly added figure before the figure has a layout, and lays it out right afterwards, so that the
    only effect is an error in the browser's console: "reading 'top_panel'". And it asks the browser for the style of
    the figure before each line and each surface that it draws, in case a style sheet has colours for them; the browser
    then computes all styles of the page again, which took two of the six seconds in which our page opens, and 13 of the
    42 seconds that a dark page of a host with two explorers took under a profiler. Our figures are not asked: their
    colours are set by Python. Each layout
    of a page empties and writes again the style sheets of all its parts, with five writes per part, although they say
    what they said before: 21,000 writes while the laboratory opens. A layout of ours writes those that differ, at its
    end and before anything is measured. Each component that a browser has drawn, or that has another size than before,
    lays out all of its page. Ours wait for the next frame, which lays them out together. The size of the letters of a
    figure is read once, and a script of several components is compiled once. Panel searches each script, 1.4 MB of
    them, for names of packages; on our own pages, where no script has any, the browser imports them.

    Bokeh reads the columns of a figure anew at each change of a colour: 134 times when the theme of the laboratory is
    switched, and where columns change in the same message, it then finds lengths that differ. Here it reads them once,
    after all changes of a message: 18 times.

    Panel forgets rows that come while a table is being built, as when a stored run follows the first kept one: they are
    shown once the table is built.
    """

    _esm = beside(__file__, "bokeh_fixes.js")

    def _get_model(self, doc: Document, root: Any = None, parent: Any = None, comm: Any = None) -> Any:
        """Make the model, in a page whose changes travel together from now on."""
        if doc.session_context is not None:
            send_patches_together(doc)
        return super()._get_model(doc, root, parent, comm)


def repaired(*parts: Any, **look: Any) -> pn.Column:
    """Return parts below each other in the page of a host, with `BokehFixes` for all that they contain."""
    return pn.Column(BokehFixes(), *parts, tags=["gpexplorer"], **look)


# A page of our own is mended, and gets its theme, by its head, before anything is drawn on it.
OWN_PAGE = """{{% extends "base.html" %}}
{{% block custom_css %}}<script>{{% raw %}}{}{}mend(managing)
drawInTheme(){{% endraw %}}</script>{{% endblock %}}
""".format(*(part._esm.partition("export ")[0] for part in (BokehFixes, PageTheme)))
