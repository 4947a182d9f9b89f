"""The pictures of a run: three on the first screen, the others in tabs, of which only the open one is drawn.

The first screen shows the prediction, the picture that is typical of the method's family (its hero), and the
convergence.
A picture that raises shows a sentence in its own card; the others are drawn as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import panel as pn
import panel_material_ui as pmui
import param
from bokeh.events import Tap

from ...views import View
from ...views.base import arranged
from ...views.drawing.live import Live, meaning
from ...views.drawing.static_svg import figure_svg
from ..browser.callbacks import weakly
from ..playback.open_run import Frame, Layers, RunSummary
from ..session import Session
from ..styles import CARD, CARDS, CARDS_FRAME, HEAD, TABS, TEXT
from ..tables import Steps
from ..text import sentence, text
from ..widgets import column, line_of_text, watch
from .chart import WithFigure
from .gestures import LOOK, Gestures

ON_TOP = 3  # pictures that are always visible
PREDICTION = "fit"  # key of the picture of data and prediction
SMALL = '<span class="hint">{}</span>'
DRAWING = SMALL.format("Drawing …")
SLIDER_STEPS = 100  # of a number whose declaration names no step
EMPTY = "There is nothing to draw at this step. Take a step, or choose another one."
PLACE = 230  # pixels; the card makes it higher. Without a height, Panel would stretch all layouts around the figure
FILL = {"position": "absolute", "inset": "0"}  # a figure is as large as its place on the card
ONLY = {"(1-D)": 1, "(2-D)": 2}  # an option whose label ends so applies to data with this number of inputs only
LETTER_WIDTH, PADDING = 7.2, 44  # pixels
LABEL_LETTER_WIDTH = 6.5  # pixels, of the label above a selector
MIN_WIDTH, MAX_WIDTH = 92, 250  # pixels of a selector
FONT = {".MuiSelect-select": {"fontSize": "0.8125rem"}}
LABEL_FONT = ".MuiFormControlLabel-root .MuiFormControlLabel-label { font-size: 0.8125rem; }"


class Picture(WithFigure):
    """The card of one view: its title, what to look for, its figure, and its options in a corner.

    The options appear under the pointer and with the keyboard; on a touch screen they are always there.

    The figure is drawn once and updated in place for as long as its axes mean the same.

    Parameters
    ----------
    view : View
        What to draw.
    run : RunSummary
        The open run.
    session : Session
        Carries out what a person asks for in the picture.

    Attributes
    ----------
    card : Column
        The layout; empty until the picture is looked at for the first time.
    layers : Layers
        What is drawn.
    gestures : Gestures or None
        Dragging of points and editing of rows; None for a view that is not editable.
    """

    def __init__(self, view: View, run: RunSummary, session: Session) -> None:
        super().__init__(session.theme, margin=(0, 12), visible=False)
        self._session = session
        self._height = 0  # pixels that the place of the figure has at least
        self._drawn_for: Any = None  # what the figure, or the sentence in its place, was made for
        self.layers: Layers = {}
        self._selectors: dict[str, pmui.Select] = {}  # of the options, by the name of the parameter
        self._inputs = run.inputs
        self.gestures = Gestures(run, session) if view.editable else None
        self.adopt(view, run)
        self.card = self._layout = column(margin=0, css_classes=["picture"], stylesheets=[CARD])

    def adopt(self, view: View, run: RunSummary) -> None:
        """Show this view of another run; options that were chosen stay, where this run offers them."""
        if self._live is not None:
            for name, value in _options(self.view).items():
                if name in view.param and value in _choices(view).get(name, {"": value}).values():
                    setattr(view, name, value)
        self.view, self._data = view, (repr(run.spec.kernel), run.data, run.rows, run.target)
        for name, names in _choices(view).items():
            if (widget := self._selectors.get(name)) is not None and widget.options != names:
                widget.param.update(options=names, value=getattr(view, name))
        if self.gestures is not None:
            self.gestures.adopt(run)

    def build(self) -> None:
        """Put title, options and a place for the figure on the card, the first time that the picture is looked at."""
        if len(self.card):
            return
        view = self.view
        words = SMALL.format(text(" ".join([view.help, view.choice, view.click])))
        title = line_of_text(f"<h2>{text(view.title)}</h2>{words}", (8, 12, 4, 12), (TEXT, HEAD))
        widgets = options(lambda: self.view, self._inputs, self._session.player.redraw)
        labels = {setting.label: name for name, setting in view.param.objects("existing").items()}
        self._selectors = {labels[part.label]: part for part in widgets or () if isinstance(part, pmui.Select)}
        self._sentence = pn.pane.HTML(DRAWING, margin=(24, 14), stylesheets=[TEXT])
        self._place = column(self._sentence, height=PLACE, margin=(0, 6), css_classes=["place"])
        tools = [part for part in (self.gestures and self.gestures.mode, widgets) if part is not None]
        title.css_classes = ["has-options"] if tools else []
        corner = [pn.Column(*tools, margin=0, css_classes=["corner"])] if tools else []
        gestures = [self.gestures] if self.gestures is not None else []
        if self.gestures is not None:
            watch(self._keep_height, self.gestures.mode)
        self.card[:] = [title, *corner, *gestures, self.legend, self._place]

    def update(self, layers: Layers) -> None:
        """Show these layers; an error of the view becomes a sentence on the card."""
        self.build()
        self.layers = layers
        if not any(len(frame) for frame in layers.values()):
            title = next((title for frame in layers.values() if (title := frame.attrs.get("title"))), "")
            says_why = title.partition(" ")[0] in ("no", "not", "nothing")  # such as "no draws yet: ..."
            self._show_sentence(SMALL.format(f"{text(title.capitalize())}." if says_why else EMPTY))
            return
        mode = self.gestures and self.gestures.mode.value
        drawn_for = (self._data, meaning(layers), tuple(_options(self.view).items()), mode)
        is_unchanged = drawn_for == self._drawn_for
        if is_unchanged and self._live is None:
            self.layers = {}
            return  # the same drawing failed before; it would fail, and be logged, once per frame
        try:
            if is_unchanged and self._live is not None:
                self._live.update(layers)
                self.legend.fill(self._live.legend)
            else:
                self._draw(layers)
        except Exception as error:
            self.fail(sentence(error, f"the picture “{self.view.title}” was being drawn"))
        if self._live is not None:
            self.legend.param.update(caption=self._live.caption, number=self._live.number)
        self._drawn_for = drawn_for

    def fail(self, message: str) -> None:
        """Show why this picture cannot be drawn."""
        self.build()
        self.layers = {}
        self._show_sentence(SMALL.format(text(message)))

    def name_file(self, frame: Frame) -> None:
        """Let a saved picture have the name of its run and step."""
        if self._live is not None and frame.run is not None and frame.numbers is not None:
            self._live.figure.name = self.view.saved_as(frame.run.spec.method, frame.numbers.at)

    @property
    def said(self) -> str:
        """The sentence, as HTML, in place of the figure; empty where the figure is drawn."""
        return self._sentence.object if self._live is None and len(self.card) else ""

    def svg(self, width: int, height: int) -> str:
        """Return the figure as SVG of this size in pixels; empty where a sentence takes its place."""
        return figure_svg(self._live.figure, width, height) if self._live is not None else ""

    def _draw(self, layers: Layers) -> None:
        """Draw a new figure and listen to it."""
        self._live = Live(self.view, layers, self._theme.name)
        figure = self._live.figure
        # WebGL needs a GPU to be faster than a canvas for so few glyphs.
        figure.output_backend = "canvas"
        # A screen reader finds a canvas without words otherwise; numbers and legend stand above it as text.
        figure.html_attributes = {"role": "figure", "aria-label": f"{self.view.title}. {self.view.help}"}
        self._live.leave_words_to_page()
        self.legend.fill(self._live.legend)
        self.legend.visible = True
        if self.gestures is not None:
            self.gestures.listen(figure, lambda: self.layers)
        if self.view.click:
            figure.on_event(Tap, weakly(self._click))
        self._place[:] = [pn.pane.Bokeh(figure, sizing_mode="stretch_both", margin=0, styles=FILL)]

    def _keep_height(self) -> None:
        """Let the card grow by what stands above the figure while a person moves points or edits rows."""
        if self.gestures is None or self.gestures.mode.value == LOOK:
            self._height = 0
        elif not self._height and self._live is not None:
            self._height = self._live.figure.outer_height or 0  # as the browser has said; unset without one
        self._place.styles = {"--height": f"{self._height}px"}

    def _show_sentence(self, markup: str) -> None:
        """A sentence in place of the figure."""
        self._sentence.object = markup
        self._live = self._drawn_for = None
        self.legend.visible = False
        if list(self._place) != [self._sentence]:
            self._place[:] = [self._sentence]

    def _click(self, event: Any) -> None:
        self._session.click(self.view.key, event.x, event.y)


class Pictures:
    """All pictures of the open run.

    Parameters
    ----------
    session : Session
        Whose run is shown.

    Attributes
    ----------
    top : Column
        The layout of the pictures that are always visible.
    tabs : Tabs
        The layout of the others, and of the table of steps.
    first : str or None
        Key of the picture that takes the place of the hero with the next run; empty for the hero of the family, and
        None for the same picture as before.
    axes : mapping of str to tuple of float
        Key of a picture -> two numbers that its vertical axis contains.
    pictures : dict of str to Picture
        Key -> picture, in the order of the page.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._opening = -1
        self._kind: tuple[Any, ...] = ()
        self.first: str | None = None
        self.axes: Mapping[str, tuple[float, float]] = {}
        self._asked, self._tab = "", ""
        self._under = ""  # key of the picture under the prediction, on the same axis of one input
        self._hurried = self._is_seen = False
        self._waiting: Frame | None = None  # the newest one, until somebody looks
        self.pictures: dict[str, Picture] = {}
        self.steps = Steps()
        self._cards = column(margin=0, stylesheets=[CARDS], css_classes=["cards"])
        self.top = column(self._cards, margin=0, stylesheets=[CARDS_FRAME])
        self.tabs = pmui.Tabs(sizing_mode="stretch_width", margin=(4, 6), sx=TABS)
        self.tabs.param.watch(self._choose_tab, "active")

    @property
    def classes(self) -> list[str]:
        """The names by which styles know how the cards lie."""
        return self._cards.css_classes

    @property
    def visible(self) -> list[str]:
        """Keys of the pictures on the screen: those on top, and the one in the open tab."""
        keys = list(self.pictures) if self._is_seen else []
        if self._hurried:
            return self._first_keys
        return keys[:ON_TOP] + keys[ON_TOP:][self.tabs.active : self.tabs.active + 1]

    @property
    def _first_keys(self) -> list[str]:
        """The picture that a page begins with, and that which a link asks for."""
        keys = list(self.pictures) if self._is_seen else []
        return [key for key in keys[:ON_TOP] if key in (keys[0], self._asked)]

    @property
    def later_places(self) -> list[pn.Column]:
        """The places of the figures on the screen, without those that a page begins with."""
        later = [key for key in self.visible if key not in self._first_keys]
        return [self.pictures[key]._place for key in later if len(self.pictures[key].card)]

    @property
    def chosen(self) -> str:
        """Key of the picture that a person chose, in a tab or by a link; empty where nobody chose one."""
        return self._tab or self._asked

    def look(self, is_seen: bool) -> None:
        """Draw from now on if somebody looks: a script that only reads the run needs no pictures."""
        if is_seen and not self._is_seen:
            self._is_seen = True
            self._request_visible()
            if self._waiting is not None:
                self.update(self._waiting)
                self._waiting = None

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Draw only the pictures that a page begins with inside the block; the others follow after it."""
        self._hurried = True
        yield
        self._hurried = False
        self._session.player.show(self.visible)

    def drawn(self) -> list[tuple[View, Layers]]:
        """Return the views on the screen, each with the layers it shows."""
        pictures = [self.pictures[key] for key in self.visible]
        return [(picture.view, picture.layers) for picture in pictures if picture.layers]

    def options(self) -> dict[str, dict[str, Any]]:
        """Return the keys of the pictures on the screen, with the options that a person chose for each."""
        return {key: _options(self.pictures[key].view) for key in self.visible}

    def set_stale(self, stale: bool, *numbers: Any) -> None:
        """Fade the pictures and these numbers while they are of an earlier run: the newest one could not be opened."""
        self.top.visible = bool(self.pictures) or not stale
        for part in (self.top, self.tabs, *numbers):
            if stale or part.styles:  # a browser keeps a style that is left out, so that both are named
                part.styles = {"opacity": "0.25" if stale else "1", "filter": "grayscale(1)" if stale else "none"}

    def update(self, frame: Frame) -> None:
        """Show this frame."""
        if frame.run is not None and frame.opening != self._opening:
            self._opening, self._waiting = frame.opening, None
            self._adopt(frame.run)
        if not self._is_seen:
            self._waiting = frame if frame.layers or frame.failures else self._waiting
            return
        for key, layers in frame.layers.items():
            if key in self.pictures:
                if key in self.axes and layers:
                    next(iter(layers.values())).attrs["at_least"] = self.axes[key]
                if key == self._under and layers and "mean" in (above := self.pictures[PREDICTION].layers):
                    next(iter(layers.values())).attrs["along"] = above["mean"]["x"].iloc[[0, -1]].to_numpy()
                self.pictures[key].update(layers)
                self.pictures[key].name_file(frame)
                if (gestures := self.pictures[key].gestures) is not None:
                    gestures.report(frame.numbers)
        for key, message in frame.failures.items():
            if key in self.pictures:
                self.pictures[key].fail(message)
        if frame.table is not None and self.tabs.active >= len(self.pictures) - ON_TOP:
            self.steps.update(frame.table, at_once=not frame.playing)

    def _adopt(self, run: RunSummary) -> None:
        """Keep the layout where the same views apply to the new run; make a new one otherwise."""
        if self.first is not None:
            self.first, self._asked, self._tab = None, self.first, ""
        views = arranged(run.views, self._asked)
        kind = (run.inputs, *(view.key for view in views))
        is_same, self._kind = kind == self._kind, kind
        if not is_same:
            self.pictures = {view.key: Picture(view, run, self._session) for view in views}
        under = [view.key for view in views[1:2] if view.over_input and run.inputs == 1 and views[0].key == PREDICTION]
        self._under = "".join(under)
        self._cards.css_classes = ["cards", *["stacked"] * len(under)]
        for place, (key, picture) in zip(("prediction", "hero", "course"), self.pictures.items(), strict=False):
            stacked = ["stacked"] * (len(under) and place != "course")
            picture.card.css_classes = ["picture", place, *["asked"] * (key == self._asked), *stacked]
        if is_same:
            for view in run.views:
                self.pictures[view.key].adopt(view, run)
            return
        pictures = list(self.pictures.values())
        self._cards[:] = pictures[:ON_TOP]
        self.tabs[:] = [*((text(p.view.title), p) for p in pictures[ON_TOP:]), ("Steps", self.steps)]
        in_tabs = list(self.pictures)[ON_TOP:]
        self.tabs.active = in_tabs.index(self._tab) if self._tab in in_tabs else 0
        self._request_visible()

    def _choose_tab(self, event: Any) -> None:
        """Note which picture a person opened."""
        in_tabs = list(self.pictures)[ON_TOP:]
        if event.old < len(in_tabs):  # not where the number of tabs has just changed
            self._tab = "".join(in_tabs[self.tabs.active : self.tabs.active + 1])
        self._request_visible()

    def _request_visible(self) -> None:
        """Build the cards on the screen, and ask the player for their layers."""
        if not self._is_seen:
            return
        for key in self.visible:
            self.pictures[key].build()
        self._session.player.show(self.visible)


def _options(view: View) -> dict[str, Any]:
    """The options that a person chose for this view."""
    settings = sorted(view.param.objects("existing").items())
    return {name: getattr(view, name) for name, setting in settings if not (setting.constant or setting.readonly)}


def _choices(view: View) -> dict[str, dict[str, Any]]:
    """What each selector of a view offers for its run."""
    parameters = view.param.objects("existing").items()
    return {name: dict(setting.get_range()) for name, setting in parameters if isinstance(setting, param.Selector)}


def options(current: Callable[[], Any], inputs: int, on_change: Callable[[], None]) -> pmui.FlexBox | None:
    """Return a row of small widgets, one per public parameter of a view; None for a view without parameters.

    Parameters
    ----------
    current : callable
        Returns the view whose options are shown and set; the view may be replaced during a session.
    inputs : int
        Number of input columns of the open data.
    on_change : callable
        Called without arguments after a person changed an option.
    """
    view = current()
    shown = {
        name: setting
        for name, setting in view.param.objects("existing").items()
        if name != "name"
        and not name.startswith("_")
        and not setting.constant
        and (setting.precedence or 0) >= 0
        and ONLY.get(str(setting.label)[-5:], inputs) == inputs
    }
    widgets = [
        widget for name, setting in shown.items() if (widget := _widget(current, name, setting, on_change)) is not None
    ]
    return pmui.FlexBox(*widgets, flex_wrap="wrap", align_items="center", margin=(2, 6)) if widgets else None


def _widget(current: Callable[[], Any], name: str, setting: param.Parameter, on_change: Callable[[], None]) -> Any:
    common = {
        "label": setting.label,
        "value": getattr(current(), name),
        "description": setting.doc or "",
        "margin": (4, 5),
    }
    low, high = getattr(setting, "bounds", None) or (None, None)
    if isinstance(setting, param.Boolean):
        widget = pmui.Checkbox(size="small", stylesheets=[LABEL_FONT], **{**common, "margin": (0, 5)})
    elif isinstance(setting, param.Selector):
        names = setting.get_range()
        width = max(_width_for(names), PADDING + round(LABEL_LETTER_WIDTH * len(str(setting.label))))
        widget = pmui.Select(options=names, size="small", width=width, sx=FONT, **common)
    elif isinstance(setting, param.Integer):
        widget = pmui.IntInput(start=low, end=high, size="small", width=_width_for([str(setting.label)]), **common)
    elif isinstance(setting, param.Number):
        step = setting.step or (high - low) / SLIDER_STEPS
        widget = pmui.FloatSlider(start=low, end=high, step=step, width=150, **common)
    else:
        return None

    def choose(event: Any) -> None:
        try:
            setattr(current(), name, event.new)
        except ValueError:  # a browser can send any value; the view keeps the one it has
            return
        on_change()

    widget.param.watch(choose, "value_throttled" if hasattr(widget, "value_throttled") else "value")
    return widget


def _width_for(names: Iterable[str]) -> int:
    """Pixels that show the longest name completely, within the bounds."""
    return min(max(PADDING + round(LETTER_WIDTH * max(map(len, names), default=0)), MIN_WIDTH), MAX_WIDTH)
