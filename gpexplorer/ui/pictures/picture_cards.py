"""The pictures of a run: two on top, the rest in tabs of which only the open one is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import panel as pn
import panel_material_ui as pmui
from bokeh.events import Tap

from ...views.drawing.live import Live
from ..browser.weak_callback import weakly
from ..inputs.view_options import options
from ..playback.messages import Frame
from ..playback.open_run import Layers, Opened
from ..session import Session
from ..text.escape import text
from .gestures import Hands
from .step_table import Steps

ON_TOP = 2
SAID = '<span style="font-size:12.5px;opacity:.75">{}</span>'
SOON, EMPTY = SAID.format("Drawing …"), SAID.format("Nothing to draw at this step yet: take the next one.")
CARD = {
    "border": "1px solid rgba(127,140,153,.35)", "border-radius": "8px", "padding-bottom": "6px",
    "height": "auto", "align-self": "stretch",  # as tall as the card beside it
}  # fmt: skip
ROW = 48  # pixels of a row of options: a picture without one is as much taller, so that cards end level


class Picture(pn.viewable.Viewer):
    """One view: its title, what to look for, its options, and a figure that lives as long as its axes mean the same."""

    def __init__(self, view: Any, opened: Opened, session: Session, height: int, **params: Any) -> None:
        super().__init__(**params)
        self._session = session
        self._live: Live | None = None
        self._drawn: Any = None
        self.layers: Layers = {}  # what is drawn
        self._height, self._inputs = height, opened.inputs
        self.hands = Hands(opened, session) if view.editable else None
        self.adopt(view, opened)
        self.card = pn.Column(sizing_mode="stretch_width", margin=6, styles=CARD)

    def build(self) -> None:
        """Put title, options and figure on the card, once: most pictures of a run are never looked at."""
        if len(self.card):
            return
        view = self.view
        title = pn.pane.HTML(
            f'<b style="font-size:15px">{text(view.title)}</b><br>'
            f'<span style="font-size:12.5px;opacity:.75">{text(" ".join([view.help, view.click]))}</span>',
            margin=(8, 12, 2, 12),
            sizing_mode="stretch_width",
        )
        chosen = options(lambda: self.view, self._inputs, self._session.player.redraw)
        self._height += 0 if chosen else ROW
        self._sentence = pn.pane.HTML(SOON, margin=(24, 14))
        self._place = pn.Column(self._sentence, sizing_mode="stretch_width", min_height=self._height, margin=0)
        if self.hands is not None:
            title.param.update(sizing_mode=None, styles={"flex": "1 1 180px"})
            title = pn.FlexBox(title, self.hands.mode, justify_content="space-between", sizing_mode="stretch_width")
        parts = [title, chosen, self.hands, self._place]
        self.card[:] = [part for part in parts if part is not None]

    def adopt(self, view: Any, opened: Opened) -> None:
        """Show this view of a run; options chosen before stay."""
        if self._live is not None:
            view.param.update(**{k: v for k, v in _options(self.view).items() if k in view.param})
        self.view, self._of = view, (repr(opened.spec.kernel), opened.data, opened.rows, opened.target)
        if self.hands is not None:
            self.hands.adopt(opened)

    def update(self, layers: Layers, theme: str) -> None:
        """Replace the numbers; draw anew only where the axes would mean something else."""
        self.build()
        named = tuple((name, frame.attrs.get("xlabel"), frame.attrs.get("ylabel")) for name, frame in layers.items())
        self.layers = layers
        if not any(len(frame) for frame in layers.values()):
            self._say_empty()
            return
        meant = (self._of, named, tuple(_options(self.view).items()), self.hands and self.hands.mode.value)
        if self._live is not None and meant == self._drawn:
            self._live.update(layers)
            return
        self._drawn, self._live = meant, Live(self.view, layers, theme)
        self._live.figure.update(
            sizing_mode="stretch_width",
            height=self._height,
            output_backend="canvas",  # WebGL needs a GPU to be the faster one for so few glyphs
        )
        if self.hands is not None:
            self.hands.take(self._live.figure, lambda: self.layers)
        if self.view.click:
            self._live.figure.on_event(Tap, weakly(self._clicked))
        self._place[:] = [
            pn.pane.Bokeh(self._live.figure, sizing_mode="stretch_width", height=self._height, margin=(0, 6))
        ]

    def _say_empty(self) -> None:
        """A sentence in place of axes without a mark."""
        self._sentence.object = EMPTY
        if self._live is not None:
            self._live = self._drawn = None
            self._place[:] = [self._sentence]

    def _clicked(self, event: Any) -> None:
        self._session.click(self.view.key, event.x, event.y)

    def set_theme(self, theme: str) -> None:
        """Light or dark."""
        if self._live is not None:
            self._live.set_theme(theme)

    def __panel__(self) -> Any:
        return self.card


def _options(view: Any) -> dict[str, Any]:
    """What was chosen for this view."""
    held = view.param.objects("existing")
    return {k: v for k, v in view.param.values().items() if not (held[k].constant or held[k].readonly)}


class Pictures:
    """All pictures of the open run: those on `top`, and under it the `tabs`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._opening, self.theme = -1, "light"
        self._kind: tuple[Any, ...] = ()
        self.first = ""  # key of the picture whose tab is opened first
        self._hurried = False
        self.pictures: dict[str, Picture] = {}
        self.steps = Steps()
        self.top = pmui.FlexBox(sizing_mode="stretch_width", flex_wrap="wrap", align_items="stretch")
        self.tabs = pmui.Tabs(sizing_mode="stretch_width", margin=(4, 6))
        self.tabs.param.watch(lambda _: self._tell(), "active")

    @property
    def visible(self) -> list[str]:
        """Keys of the views on the screen: those on top, and the one in the open tab."""
        keys = list(self.pictures)
        if self._hurried:
            return keys[:1]
        return keys[:ON_TOP] + keys[ON_TOP:][self.tabs.active : self.tabs.active + 1]

    @property
    def open_tab(self) -> str:
        """Key of the picture in the open tab; empty for the steps."""
        return "".join(list(self.pictures)[ON_TOP:][self.tabs.active : self.tabs.active + 1])

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Only the first picture is drawn meanwhile; the others follow."""
        self._hurried = True
        yield
        self._hurried = False
        self._ask()

    def drawn(self) -> list[tuple[Any, Layers]]:
        """The views on the screen, with what they show."""
        held = [self.pictures[key] for key in self.visible]
        return [(picture.view, picture.layers) for picture in held if picture.layers]

    def update(self, frame: Frame) -> None:
        """Show this frame."""
        if frame.opened is not None and frame.opening != self._opening:
            self._opening = frame.opening
            self._adopt(frame.opened)
        for key, layers in frame.layers.items():
            if key in self.pictures:
                self.pictures[key].update(layers, self.theme)
                if (hands := self.pictures[key].hands) is not None:
                    hands.report(frame.facts)
        if frame.table is not None and self.tabs.active >= len(self.pictures) - ON_TOP:
            self.steps.update(frame.table, hurry=not frame.playing)

    def set_theme(self, theme: str) -> None:
        """Light or dark, for every figure there is."""
        if theme == self.theme:
            return
        self.theme = theme
        for picture in self.pictures.values():
            picture.set_theme(theme)

    def _adopt(self, opened: Opened) -> None:
        """Keep the layout where the same views apply; lay out anew where others do."""
        same = (opened.inputs, *(view.key for view in opened.views))
        if same == self._kind:
            for view in opened.views:
                self.pictures[view.key].adopt(view, opened)
            self._turn_to(self.first, self.tabs.active)
            return
        self._kind = same
        tall = [330] * ON_TOP + [300] * len(opened.views)
        self.pictures = {
            view.key: Picture(view, opened, self._session, height)
            for view, height in zip(opened.views, tall, strict=False)
        }
        shown = list(self.pictures.values())
        grow = ({"flex": "3 1 420px", "min-width": "0"}, {"flex": "2 1 340px", "min-width": "0"})
        for picture, style in zip(shown, grow, strict=False):
            picture.card.styles = {**CARD, **style}
        self.top[:] = shown[:ON_TOP]
        self.tabs[:] = [*((text(p.view.title), p) for p in shown[ON_TOP:]), ("Steps", self.steps)]
        self._turn_to(self.first, 0)
        self._tell()

    def _turn_to(self, key: str, otherwise: int) -> None:
        """Open the tab of this picture, once; another one where it has none."""
        under, self.first = list(self.pictures)[ON_TOP:], ""
        self.tabs.active = under.index(key) if key in under else otherwise

    def _tell(self) -> None:
        """Ask for what is on the screen now; its cards stand while it is being drawn."""
        for key in self.visible:
            self.pictures[key].build()
        self._ask()

    def _ask(self) -> None:
        self._session.player.show(self.visible)
        self._session.player.redraw()
