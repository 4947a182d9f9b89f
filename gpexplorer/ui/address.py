"""What the address of a page asks for: a link, a question to begin with, and parts to hide for a lecture."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode

import panel as pn

from ..errors import closest, quoted
from ..runs import Spec
from ..runs import link as links
from ..runs.link import Link
from ..views.base import registry as views
from .browser.callbacks import served_document
from .inputs.presets import OPENING, PRESETS, says_what_happened
from .stories import STORIES

HIDE = {"controls": "the controls", "panels": "the panels below"}  # what ?hide= accepts -> its name on the page
FIRST, GALLERY, SIDE_BY_SIDE, LABORATORY = "first", "stories", "side-by-side", "laboratory"
PAGES = (FIRST, GALLERY, SIDE_BY_SIDE, LABORATORY)  # values of ?page=
OWN_ROWS = f"?page={LABORATORY}&rows=own"  # the address of a run on rows that no address can bring
FILE_NEEDED = "An address cannot bring rows of your own, so this run is on others. Choose your file again."
OWN_NAMES = ("page", "ask", "hide", "rows", "story", "part", "v", "view", "at", "defaults", *links.FIELDS)
LONGEST_VALUE = 40  # characters of ?ask= and ?hide= that are read


class PageRequest(NamedTuple):
    """What an address asks for.

    Attributes
    ----------
    link : Link
        The spec, the picture and the step to open, and sentences on what had to be corrected.
    question : str
        Key of the preset that the page begins with; empty for none.
    hide : frozenset of str
        Keys of `HIDE`: the parts of the page to leave out.
    story : str
        Key of the story that is told; empty for none. It leaves out all parts of `HIDE`.
    part : int
        Its part, counted from 0.
    own_rows : bool
        Whether the rows are those of a file, which an address cannot bring.
    """

    link: Link
    question: str = ""
    hide: frozenset[str] = frozenset()
    story: str = ""
    part: int = 0
    own_rows: bool = False


def read_query(query: str, start: Spec) -> PageRequest:
    """Read what a query asks for. This never raises.

    Parameters
    ----------
    query : str
        The part of the address after "?", such as "v=1&ask=rough&seed=7". What it says besides its question takes
        precedence over the question. `page=laboratory` without a run asks `OPENING`.
    start : Spec
        The spec for everything that the query does not mention.

    Returns
    -------
    PageRequest
        Each invalid part of the query is replaced, with a sentence in `link.corrected`. What other programs add to an
        address, such as utm_source, is left out.
    """
    values = _without_foreign(parse_qs(query.removeprefix("?"), keep_blank_values=True))
    is_plain = _pop(values, "page") == LABORATORY and not values.keys() - {"hide"}
    question = OPENING if is_plain else _pop(values, "ask")
    hide, own_rows = [part for part in _pop(values, "hide").split(",") if part], _pop(values, "rows") == "own"
    corrected = [FILE_NEEDED] if own_rows else []
    if question and question not in PRESETS:
        corrected.append(f"There is no question {quoted(question)}{closest(question, PRESETS)}")
        question = ""
    for part in hide:
        if part not in HIDE:
            corrected.append(f"{quoted(part)} cannot be left out; {' and '.join(HIDE)} can.")
    story, part = _pop(values, "story"), _pop(values, "part")
    if story and story not in STORIES:
        corrected.append(f"There is no story {quoted(story)}{closest(story, STORIES)}")
        story = ""
    number = _part(part, story)
    preset = _preset(question, story, number, start)
    link = links.read(urlencode(values, doseq=True), preset.spec, views) if values else preset
    if question and link.spec != preset.spec and says_what_happened(question):
        question = ""
    at = preset.at if link.at is None else link.at
    link = Link(link.spec, link.view or preset.view, at, (*corrected, *link.corrected))
    left_out = set(HIDE) if story else frozenset(hide) & set(HIDE)
    return PageRequest(link, "" if story else question, frozenset(left_out), story, number, own_rows)


def write_query(request: PageRequest, start: Spec) -> str:
    """Write the query from which `read_query` reads this request, without what it would fill in.

    Parameters
    ----------
    request : PageRequest
        What to ask for.
    start : Spec
        What `read_query` will be given as its start.

    Returns
    -------
    str
        With its question mark. The laboratory as it is opened without a link is `?page=laboratory`, and the start
        itself `?page=laboratory&v=1`.

    Raises
    ------
    SettingError
        Where a link cannot name the rows.
    """
    link, preset = request.link, _preset(request.question, request.story, request.part, start)
    fields: dict[str, str] = {"story": request.story, "part": str(request.part + 1)} if request.story else {}
    if request.question:
        fields["ask"] = request.question
    if request.hide and not request.story:
        fields["hide"] = ",".join(sorted(request.hide))
    view = link.view if link.view != preset.view else ""
    at = link.at if (link.at or 0) != (preset.at or 0) else None
    parts = [urlencode(fields, safe=","), links.write_short(link.spec, preset.spec, view, at)]
    query = "&".join(filter(None, parts))
    plain = f"page={LABORATORY}"
    return f"?{plain if query == f'ask={OPENING}' else query or f'{plain}&v={links.VERSION}'}"


def session_page() -> str:
    """Return which page the address of the present session asks for; the laboratory where there is no session."""
    return asked_page(_session_arguments()) if pn.state.curdoc is not None else LABORATORY


def asked_page(arguments: Mapping[str, list[bytes]]) -> str:
    """Return which page an address asks for: `FIRST` without a query, else as `?page=` says, or the laboratory.

    Parameters
    ----------
    arguments : mapping of str to list of bytes
        The arguments of the request.
    """
    values = _values(arguments)
    page = values.get("page", [""])[0][:LONGEST_VALUE]
    return page if page in PAGES else LABORATORY if values else FIRST


def session_query() -> str:
    """Return the part of the address of the present session after "?"; empty where there is no session."""
    return str(getattr(session_http_request(), "query", ""))


def session_request(start: Spec) -> PageRequest:
    """Read what the address of the present session asks for; `start` where it asks for nothing."""
    return read_query(urlencode(_values(_session_arguments()), doseq=True), start)


def session_http_request() -> Any:
    """Return the request that opened the present session; None where there is no session."""
    document = served_document()
    context: Any = None if document is None else document.session_context
    return None if context is None else context.request


def _session_arguments() -> Mapping[str, list[bytes]]:
    return getattr(session_http_request(), "arguments", {})


def _values(arguments: Mapping[str, list[bytes]]) -> dict[str, list[str]]:
    """The arguments as text, without those of Bokeh and of other programs."""
    texts = {name: [value.decode("utf-8", "replace") for value in listed] for name, listed in arguments.items()}
    return _without_foreign(texts)


def _without_foreign(values: dict[str, list[str]]) -> dict[str, list[str]]:
    """The values whose names are known, or similar to a known one, as a misspelled one is."""

    def is_ours(name: str) -> bool:
        is_known = name.partition(".")[0] in OWN_NAMES
        return is_known or (not name.startswith("bokeh-") and bool(difflib.get_close_matches(name, OWN_NAMES)))

    return {name: listed for name, listed in values.items() if is_ours(name)}


def full_address(query: str) -> str:
    """Return the page's own address with this query; the query alone where there is no page."""
    location = pn.state.location
    if location is None or not location.hostname:
        return query
    port = f":{location.port}" if location.port else ""
    return f"{location.protocol}//{location.hostname}{port}{location.pathname}{query}"


def _preset(question: str, story: str, part: int, start: Spec) -> Link:
    """What a question or a part of a story opens; `start` where there is neither."""
    query = STORIES[story].parts[part].link if story else PRESETS[question].link if question else ""
    return links.read(query, start, views) if query else Link(start)


def _part(number: str, story: str) -> int:
    """The part of a story that an address names, counted from 0; the first or last one for a number beyond them."""
    if not (story and number.isascii() and number.isdigit()):
        return 0
    return min(max(int(number) - 1, 0), len(STORIES[story].parts) - 1)


def _pop(values: dict[str, list[str]], name: str) -> str:
    return values.pop(name, [""])[0][:LONGEST_VALUE]
