"""The app: the page of each session that a server opens.

Pages are built in advance (`ready_sessions.py`), and the tabs and the controls are added after the first picture is on
the screen.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import panel as pn
from bokeh.core.has_props import HasProps
from bokeh.core.property.descriptors import PropertyDescriptor
from bokeh.settings import settings
from panel.custom import ReactiveESM
from panel_material_ui.base import MaterialComponent
from panel_material_ui.theme import MaterialDesign

from ..runs import Spec, Store
from .address import FIRST, GALLERY, SIDE_BY_SIDE, session_page, session_query, session_request
from .explorer import START, Explorer
from .page import explorer_page, load_resources, own_page
from .screens.first_screen import FirstScreen
from .screens.gallery import Gallery
from .screens.screen import Screen, screen_page
from .screens.side_by_side import SideBySide
from .shared_limits import Shares, heavy_link
from .text import record

COLLECTION = (20_000, 20, 50)  # thresholds of garbage collection, which took an eighth of the time of a page
# The pages beside the laboratory
SCREENS: dict[str, type[Screen]] = {FIRST: FirstScreen, GALLERY: Gallery, SIDE_BY_SIDE: SideBySide}


def app(
    store: Store | None = None, notice: str = "", shares: Shares | None = None,
    on_close: Callable[[], None] | None = None,
) -> Any:  # fmt: skip
    """Build the page of one session.

    Parameters
    ----------
    store : Store, optional
        Where kept runs and notes stay; None for nowhere.
    notice : str, default ""
        A warning to show on the page.
    shares : Shares, optional
        The memory and the cores that all sessions share.
    on_close : callable, optional
        Called when the page was closed and its run has ended.

    Returns
    -------
    panel_material_ui.Page, Screen or panel.pane.HTML
        The page. Where building it raises, a sentence with a number, under which the log has the exception: Panel
        would show the traceback, with text from the address in it unescaped.
    """
    try:
        own_page()
        arrivals = shares.arrivals if shares is not None else None
        if (screen := SCREENS.get(session_page())) is not None:
            pn.extension()
            return screen_page(screen(notice=notice), on_close, arrivals)
        request = session_request(Spec(**START))
        load_resources()
        spec = request.link.spec
        explorer = Explorer(spec, store=store, shares=shares, wait_message=heavy_link(spec))
        explorer.adopt(request)
        if notice:
            explorer.status.say(notice)

        def end() -> None:
            explorer.close()
            if on_close is not None:
                on_close()

        show_controls = "controls" not in request.hide
        page = explorer_page(explorer, end, show_controls, arrivals=arrivals, listeners=[explorer.follow_address()])
        if shares is not None:
            shares.first_pictures.draw(session_query(), explorer, request.link.at or 0, show_controls)
        return page
    except Exception as error:
        number = record(error, "the page was being built")
        return pn.pane.HTML(
            f"<p>The page could not be built. The reason is in the log under {number}. Load the page again.</p>"
        )


_overridden_defaults = cache(HasProps._overridden_defaults.__func__)  # type: ignore[attr-defined]
_modifiers = MaterialDesign._get_modifiers.__func__  # type: ignore[attr-defined]
_kept_modifiers: dict[tuple[Any, ...], tuple[dict[str, Any], dict[str, Any]]] = {}


@cache
def _has_unstable_default(descriptor: PropertyDescriptor[Any], kind: type[HasProps]) -> bool:
    """Whether the default of a property of this class is made anew for each object."""
    default = kind.__overridden_defaults__.get(descriptor.name)
    return descriptor.property._may_have_unstable_default() or descriptor.is_unstable(default)


def _get_modifiers(
    cls: type[MaterialDesign], viewable: Any, theme: Any, isolated: bool | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a design changes on a component: it depends on the component's class alone, and who asks changes it."""
    document = pn.state.curdoc
    key = (cls, type(viewable), type(theme), isolated, bool(document and document.session_context))
    if key not in _kept_modifiers:
        _kept_modifiers[key] = _modifiers(cls, viewable, theme, isolated)
    own, of_children = _kept_modifiers[key]
    return dict(own), dict(of_children)


@cache
def speed_up() -> None:
    """Let Bokeh and Panel look up once per class what they look up at each use: some tenths of a second per page.

    These are defaults of properties, files of components, what a design changes, and whether a package is there. And
    let Bokeh not read the signatures of a page's thousand callbacks, by which it would explain a wrong one.
    """
    settings.perform_error_diagnostics = False
    HasProps._overridden_defaults = classmethod(_overridden_defaults)  # type: ignore[method-assign, assignment]
    HasProps.themed_values = lambda self: vars(self).get("__themed_values__")  # type: ignore[method-assign]
    PropertyDescriptor.has_unstable_default = (  # type: ignore[method-assign]
        lambda descriptor, instance: _has_unstable_default(descriptor, type(instance))
    )
    MaterialDesign._get_modifiers = classmethod(_get_modifiers)  # type: ignore[method-assign, assignment]
    components: Any = sys.modules[MaterialComponent.__module__]
    components.import_available = cache(components.import_available)
    for kind in (ReactiveESM, MaterialComponent):
        for name in ("_bundle_path", "_bundle_css"):
            of_class = vars(kind)[name]
            of_class.f = cache(of_class.f)


def warm() -> None:
    """Prepare the server: draw once, so that the first visitor need not wait for imports and caches.

    Objects that exist by then stay for ever. They are excluded from garbage collection, which would otherwise walk
    through all of them while pages are being built. From then on `server.py` decides when memory is freed.
    """
    speed_up()
    pn.extension()
    explorer = Explorer()
    explorer.settle()
    explorer.close()
    del explorer
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION)
