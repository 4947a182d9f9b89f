"""What happens while visitors arrive, and when a connection ends.

While pages are on their way to browsers, the parts of other pages that can wait do wait: of 20 people who open the page
at once, the last one gets a picture before the first one gets all controls. Of a page that was built in advance, these
parts are built as well, and wait beside the document, whose JSON is written in advance too.

When a connection ends, computing stops at once, and the session a little later. A connection also ends where a network
fails for a moment. The browser then connects to the same session again, so the session lives for a while, and only its
work is paused.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import panel as pn
from bokeh.core.json_encoder import serialize_json
from bokeh.core.serialization import Serializer
from bokeh.document import Document
from bokeh.document.events import DocumentChangedEvent, SessionCallbackAdded, SessionCallbackRemoved
from bokeh.events import ConnectionLost
from bokeh.model import Model
from bokeh.protocol.messages.pull_doc_reply import pull_doc_reply
from bokeh.server.connection import ServerConnection
from bokeh.server.session import ServerSession
from panel.io.resources import Resources
from panel.io.server import server_html_page_for_session
from panel.io.state import set_curdoc
from panel.models.location import Location

from .browser.callbacks import weakly

PAUSE_AFTER = 1.0  # seconds without a connection
END_AFTER = 8.0  # seconds
LONGEST_ARRIVAL = 5.0  # seconds after which a page that was asked for is not waited for: nobody may be there
LONGEST_WAIT = 3.0  # seconds that the parts of a page wait at most for the arrival of other pages
NEXT_LOOK = 150  # milliseconds between two looks whether others are arriving
UNUSED_LIFETIME = 60.0  # seconds that a session waits for its first connection: a busy server is slow to accept it
BUILT_AHEAD: ContextVar[bool] = ContextVar("BUILT_AHEAD", default=False)  # whether a page is being built in advance

SET_BY_PANEL = {"theme_name", "dist_url"}  # variables of a template that writing HTML sets, from theme and path
MOST_TRIES = 3  # to write a page in advance


class Arrivals:
    """The pages of a server that were asked for and are not on their screens yet."""

    def __init__(self) -> None:
        self._begun: weakref.WeakKeyDictionary[Document, float] = weakref.WeakKeyDictionary()

    def begin(self, document: Document) -> None:
        """A browser has asked for this page."""
        self._begun[document] = time.monotonic()

    @property
    def pending(self) -> int:
        """Number of pages on their way."""
        clock = time.monotonic()
        return sum(1 for begun in self._begun.values() if clock - begun < LONGEST_ARRIVAL)

    def complete(self, document: Document | None, complete: Callable[[], None]) -> None:
        """Call `complete` for a page that has arrived, once no other page is on its way, or after `LONGEST_WAIT`.

        Parameters
        ----------
        document : Document or None
            The document of the page; None for a page that no server has.
        complete : callable
            Adds what could wait. It is called with the document locked.
        """
        if document is None or document.session_context is None:
            complete()
            return
        self._begun.pop(document, None)
        deadline = time.monotonic() + LONGEST_WAIT

        def look() -> None:
            if self.pending and time.monotonic() < deadline:
                document.add_timeout_callback(look, NEXT_LOOK)
            else:
                complete()

        look()


class Withheld:
    """Parts of a page that was built in advance, which its browser gets after the first picture.

    The browser loads a small document first, and the server then has to send these parts, not to build them: building
    them takes a second of the only thread that answers pages.

    Parameters
    ----------
    document : Document
        The page, which is still being built. Its places are emptied as soon as it is.
    places : sequence of panel.Column
        The layouts whose contents wait.
    """

    def __init__(self, document: Document, places: Sequence[pn.Column]) -> None:
        self._document, self._places = document, places
        self._contents: list[tuple[Model, list[Model]]] = []
        self._is_shown = False
        document.add_next_tick_callback(self._take)

    def _take(self) -> None:
        if self._is_shown:  # a visitor was there first
            return
        models = [model for place in self._places for model, _ in place._models.values()]
        self._contents = [(model, model.children) for model in models]
        self._fill([(model, []) for model in models])

    def show(self) -> None:
        """Put the parts into the document. Layouts that have changed in the meantime stay as they are."""
        self._is_shown = True
        contents, self._contents = self._contents, []
        self._fill([(model, children) for model, children in contents if not model.children])

    def _fill(self, contents: list[tuple[Model, list[Model]]]) -> None:
        with self._document.models.freeze():
            for model, children in contents:
                model.children = children


class WrittenPage:
    """The texts of a page that was built in advance: the HTML that opens it, and the JSON of its document.

    Writing them takes more than half of the time that a visit to a page of the stock costs. The first visitor gets them
    if nothing has changed since they were written. Otherwise they are dropped, and what he gets is made as usual.

    All changes of a document pass through one method, also those that are held back or sent to nobody. What can change
    without an event is compared. The address of the page differs between visitors, and is always written anew.

    Parameters
    ----------
    session : ServerSession
        The session of the page.
    resources : callable
        Returns the resources with which the server sends its pages.

    Attributes
    ----------
    session : ServerSession
        The same.
    """

    def __init__(self, session: ServerSession, resources: Callable[[], Any]) -> None:
        self.session, self._resources = session, resources
        self._tries = 0
        self._html: list[str] = []  # around the token of the visitor
        self._json: list[str] = []  # around the address
        self._address: Location | None = None
        self._without_events: Any = None
        self._variables: dict[str, Any] = {}  # of the template
        self._callbacks = session.document.callbacks
        self._trigger = self._callbacks.trigger_on_change
        vars(self._callbacks)["trigger_on_change"], vars(session)["_handle_pull"] = self._follow, self._answer

    @property
    def is_due(self) -> bool:
        """Whether to write it: there are no texts, and it is not a page that changes by itself again and again."""
        return not self._json and self._tries < MOST_TRIES

    def write(self) -> None:
        """Write the page as it is now; called with the document locked."""
        self._tries += 1
        document, mark = self.session.document, secrets.token_hex(16)
        with set_curdoc(document):
            resources, title = Resources.from_bokeh(self._resources()), document.title
            template, variables = document.template, document.template_variables
            html = server_html_page_for_session(self.session, resources, title, mark, template, variables)
        content: Any = document.to_json(deferred=False)  # arrays are inside
        self._address = next((root for root in document.roots if isinstance(root, Location)), None)
        if self._address is not None:
            content["roots"][document.roots.index(self._address)] = mark
        self._without_events = _changing_without_events(document)
        self._variables = dict(document.template_variables)
        self._html, self._json = html.split(mark), serialize_json({"doc": content}).split(f'"{mark}"')

    def html(self, token: str) -> str | None:
        """The HTML for a visitor with this token; None if the page was not written, or has changed."""
        html, self._html = self._html, []
        if not html or not self._is_unchanged():
            return None
        self.session.document.template_variables.update(self._variables)
        return token.join(html)

    def _is_unchanged(self) -> bool:
        return bool(self._json) and self._without_events == _changing_without_events(self.session.document)

    def _follow(self, event: DocumentChangedEvent) -> None:
        """Drop the texts if this changes the document."""
        is_address = self._address is not None and getattr(event, "model", None) is self._address
        if not is_address and not isinstance(event, SessionCallbackAdded | SessionCallbackRemoved):
            self._html, self._json = [], []
        self._trigger(event)

    async def _answer(self, question: Any, connection: ServerConnection) -> Any:
        """Answer the question for the document in place of `ServerSession._handle_pull`, once."""
        session: Any = self.session
        usual: Any = ServerSession._handle_pull
        answer = await session.with_document_locked(self._message, question)
        return answer or await usual(session, question, connection)

    def _message(self, question: Any) -> pull_doc_reply | None:
        """The answer with the text; None if it was dropped. From now on the document is followed no more."""
        for patched, name in ((self._callbacks, "trigger_on_change"), (self.session, "_handle_pull")):
            vars(patched).pop(name, None)  # a second connection may have asked in the meantime
        parts, is_unchanged = self._json, self._is_unchanged()
        self._json, address = [], ""
        if not is_unchanged:
            return None
        if self._address is not None:
            if self._address.references() != {self._address}:
                return None
            address = serialize_json(Serializer(deferred=False).encode(self._address))
        content: Any = {}  # is there already as text
        answer = pull_doc_reply(pull_doc_reply.create_header(question.header["msgid"]), {}, content)
        answer._content_json = address.join(parts)
        return answer


def _changing_without_events(document: Document) -> Any:
    """What of a page may change without an event: settings and functions of its document, template, and classes."""
    serializer = Serializer(references=set(document.models), deferred=False)
    others = serializer.encode([document.config, dict(document.callbacks.js_event_callbacks)])
    with set_curdoc(document):
        variables = {name: value for name, value in document.template_variables.items() if name not in SET_BY_PANEL}
        html = document.template, variables, pn.config.theme, pn.state.rel_path
    return others, html, list(Model.model_class_reverse_map)


def follow_connection(document: Document, pause: Callable[[], None]) -> None:
    """Call `pause` when the last connection of a document has been lost for a second, and end its session later.

    Parameters
    ----------
    document : Document
        The document of a page that is served.
    pause : callable
        A method of an object; the object is not kept alive.
    """
    document_reference, pause_weakly = weakref.ref(document), weakly(pause)

    def lost(_: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(PAUSE_AFTER, _unless_connected, document_reference, lambda _: pause_weakly())
        loop.call_later(END_AFTER, _unless_connected, document_reference, lambda session: session.request_expiration())

    document.on_event(ConnectionLost, lost)


def _unless_connected(reference: weakref.ref[Document], action: Callable[[Any], None]) -> None:
    document = reference()
    context = document.session_context if document is not None else None
    session = context.session if context is not None else None
    if session is not None and not session.destroyed and session.connection_count == 0:
        action(session)
