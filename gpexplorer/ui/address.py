"""What the address of a page asks for: a link, a question to begin with, and what to leave out for a lecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, urlencode

import panel as pn

from ..errors import closest
from ..runs import Spec
from ..runs import link as links
from ..runs.link import Link
from ..runs.setting_checks import quoted
from ..views.base import registry as pictures
from .inputs.presets import PRESETS

HIDE = {"controls": "the controls", "panels": "the panels below"}


class Request(NamedTuple):
    """A link, the key of the question it belongs to (or none), and which parts of the page are left out."""

    link: Link
    question: str = ""
    hide: frozenset[str] = frozenset()


def read(query: str, start: Spec) -> Request:
    """What this query asks for, over `start`; what is wrong is put right with a sentence in the link. Never raises."""
    held = parse_qs(query.removeprefix("?"), keep_blank_values=True)
    ask, hide = _first(held, "ask"), [part for part in _first(held, "hide").split(",") if part]
    said = []
    if ask and ask not in PRESETS:
        said.append(f"There is no question {quoted(ask)}{closest(ask, PRESETS)}")
        ask = ""
    said += [f"{quoted(part)} cannot be left out; {' and '.join(HIDE)} can." for part in hide if part not in HIDE]
    begin = links.read(PRESETS[ask].link, start, pictures) if ask else Link(start)
    rest = urlencode(held, doseq=True)
    link = links.read(rest, begin.spec, pictures) if held else begin
    link = Link(link.spec, link.view or begin.view, link.at, (*said, *link.corrected))
    return Request(link, ask, frozenset(hide) & set(HIDE))


def asked(start: Spec) -> Request:
    """What the address of this session asks for; `start` where it asks for nothing."""
    document = pn.state.curdoc
    request = document.session_context.request if document is not None and document.session_context else None
    arguments: Mapping[str, list[bytes]] = request.arguments if request is not None else {}
    named = {k: [v.decode("utf-8", "replace") for v in vs] for k, vs in arguments.items() if not k.startswith("bokeh-")}
    return read(urlencode(named, doseq=True), start)


def address(query: str) -> str:
    """The page's own address with this query; the query alone where there is no page."""
    location = pn.state.location
    if location is None or not location.hostname:
        return query
    port = f":{location.port}" if location.port else ""
    return f"{location.protocol}//{location.hostname}{port}{location.pathname}{query}"


def _first(held: dict[str, list[str]], name: str) -> str:
    return held.pop(name, [""])[0][:40]
