"""The race on the page: which methods, for how long, and who is ahead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import panel as pn
import panel_material_ui as pmui

from ...errors import GPExplorerError
from ...methods.base import registry
from ...runs import Spec
from ...runs.studies.race import METRICS, Race
from ...views.base import legend_cols
from ...views.drawing.live import Live
from ...views.runs.race_curves import Lanes
from ..session import Session
from ..text.escape import text
from ..text.number_format import nbytes, number
from .race_thread import Racer, Standing

FIRST = ("cholqr", "greedy-variance", "pcg", "grief")
HEIGHT = 260
LINE = 18  # pixels of a line of the legend
ENGINE, AT = "engine", "@"
NONE = {"—": ""}
CSS = """
:host { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 12px 3px 0; text-align: right; } th:first-child, td:first-child { text-align: left; }
td.why { text-align: left; opacity: .75; } tr.ahead td { font-weight: 600; }
"""


class RacePanel(pn.viewable.Viewer):
    """Lanes on the rows that are open in `session`."""

    def __init__(self, session: Session, **params: Any) -> None:
        super().__init__(**params)
        self._session = session
        self._racer: Racer | None = None
        self._live: dict[str, Live] = {}
        self._theme = "light"
        wide = {"margin": (6, 10)}
        self.methods = pmui.MultiChoice(
            label="Methods", options=entrants(), sizing_mode="stretch_width", min_width=260,
            value=[key for key in FIRST if key in registry], description="One lane each, with its default settings.",
            **wide,
        )  # fmt: skip
        self.seconds = pmui.IntInput(
            label="Seconds for each", value=10, start=1, end=3600, width=160, description="Of its own work.", **wide
        )
        self.go = pmui.Button(
            label="Race", icon="flag", color="primary", variant="contained", on_click=lambda _: self.toggle(), **wide
        )
        self.again = pmui.Button(
            label="New race", icon="replay", variant="outlined", on_click=lambda _: self.reset(), **wide
        )
        self.out = pmui.Select(
            label="Stop one lane", options=NONE, value="", width=220, disabled=True,
            description="It ends after the step under way; what it has reached stays on the board.", **wide,
        )  # fmt: skip
        self.out.param.watch(lambda event: self._stop(event.new), "value")
        self.note = pn.pane.HTML("", margin=(0, 12), sizing_mode="stretch_width")
        self.table = pn.pane.HTML("", stylesheets=[CSS], margin=(4, 12), sizing_mode="stretch_width")
        self.reach = pn.pane.HTML("", stylesheets=[CSS], margin=(4, 12), sizing_mode="stretch_width")
        self.pictures = pmui.FlexBox(sizing_mode="stretch_width", min_height=HEIGHT, flex_wrap="wrap", visible=False)
        head = pmui.FlexBox(self.methods, self.seconds, self.go, self.again, self.out, align_items="center", gap="4px")
        self._layout = pn.Column(head, self.note, self.table, self.pictures, self.reach, sizing_mode="stretch_width")

    def toggle(self) -> None:
        """Begin, pause, go on."""
        if self._racer is None:
            self._begin()
        elif self._racer.playing:
            self._racer.pause()
        else:
            self._racer.play()
        self._show_playing()

    def reset(self) -> None:
        """Give up this race; the next one may have other lanes."""
        self.close()
        self.table.object, self.note.object, self.reach.object, self.pictures.visible = "", "", "", False
        self._offer({})
        self._show_playing()

    def update(self) -> None:
        """Show what the thread has done since."""
        standing = self._racer.take() if self._racer is not None else None
        if standing is None:
            return
        self.table.object, self.reach.object = _table(standing), _reach(standing)
        self.note.object = _note(standing)
        self._offer(standing.sentences)
        for metric, live in self._live.items():
            live.update(self._lanes[metric].data(standing.board))
        self._show_playing()

    def set_theme(self, theme: str) -> None:
        """Light or dark."""
        self._theme = theme
        for live in self._live.values():
            live.set_theme(theme)

    def close(self) -> None:
        """End the thread; for a session that is over."""
        racer, self._racer = self._racer, None
        if racer is not None:
            racer.close()

    def _begin(self) -> None:
        spec, read = self._session.spec, self._session.read
        try:
            titles = {value: title for title, value in entrants().items()}
            specs = {titles[value]: _lane(spec, value) for value in self.methods.value or []}
            race = Race(specs, data=(lambda: read(spec.split)) if read else None)
        except GPExplorerError as error:
            self.note.object = text(str(error))
            return
        self._session.pause()
        self.note.object = text(race.policy)
        self._draw(list(race.lanes))
        self._racer = Racer(race, float(self.seconds.value))
        self._offer({name: "" for name in race.lanes})
        self._racer.play()

    def _offer(self, sentences: dict[str, str]) -> None:
        """The lanes that still run can be stopped."""
        running = {name: name for name, why in sentences.items() if not why}
        if list(running.values()) != list(self.out.options.values())[1:]:
            self.out.param.update(options=NONE | running, value="", disabled=not running)

    def _stop(self, name: str) -> None:
        if name and self._racer is not None:
            self._racer.stop(name)

    def _draw(self, names: list[str]) -> None:
        self._lanes = {metric: Lanes(names, metric) for metric in METRICS}
        empty = pd.DataFrame({"lane": [], "seconds": [], **{metric: [] for metric in METRICS}})
        self._live = {m: Live(lanes, lanes.data(empty), self._theme) for m, lanes in self._lanes.items()}
        tall = HEIGHT + LINE * len(names) // legend_cols(names)
        for live in self._live.values():
            live.figure.update(sizing_mode="stretch_width", height=tall, output_backend="canvas")
        panes = [pn.pane.Bokeh(live.figure, sizing_mode="stretch_width", height=tall) for live in self._live.values()]
        self.pictures[:] = [pn.Column(pane, styles={"flex": "1 1 330px", "min-width": "0"}) for pane in panes]
        self.pictures.visible = True

    def _show_playing(self) -> None:
        racer = self._racer
        label, icon = ("Race", "flag") if racer is None else ("Pause", "pause") if racer.playing else ("Go on", "flag")
        over = racer is not None and racer.race.over
        if (self.go.label, self.go.disabled) != (label, over):
            self.go.param.update(label=label, icon=icon, disabled=over)

    def __panel__(self) -> Any:
        return self._layout


def entrants() -> dict[str, str]:
    """Title -> value of every lane there can be: each method, and GPyTorch's own engine of those that have it."""
    found = {kind.title: key for key, kind in registry.items()}
    engines = {key: kind.param.objects().get(ENGINE) for key, kind in registry.items()}
    theirs = [key for key, engine in engines.items() if "gpytorch" in getattr(engine, "objects", ())]
    return found | {f"{registry[key].title}, by GPyTorch": f"{key}{AT}gpytorch" for key in theirs}


def _lane(spec: Spec, value: str) -> Spec:
    key, _, engine = value.partition(AT)
    return replace(spec, method=key, settings={ENGINE: engine} if engine else {}, budget={})


def _note(standing: Standing) -> str:
    ahead = [f"{METRICS[metric]}: <b>{text(name)}</b>" for metric, name in standing.winners.items()]
    return ("Won" if standing.over else "Ahead") + " in " + ", in ".join(ahead) + "." if ahead else ""


def _table(standing: Standing) -> str:
    """Lanes: SMSE after so many seconds, now, SNLP, memory, and why a lane no longer runs."""
    moments = list(standing.scores["smse"].columns)
    heads = ["", *(f"SMSE at {moment}" for moment in moments), "SMSE now", "SNLP now", "seconds", "arrays", ""]
    lines = ["<tr>" + "".join(f"<th>{text(head)}</th>" for head in heads) + "</tr>"]
    for name in standing.scores["smse"].index:
        own = standing.board[standing.board["lane"] == name]
        now = own.iloc[-1] if len(own) else None
        cells = [number(float(value)) for value in standing.scores["smse"].loc[name]]
        cells += ["—"] * 2 if now is None else [number(float(now["smse"])), number(float(now["snlp"]))]
        cells += [f"{standing.seconds[name]:.1f}", "—" if now is None else nbytes(float(now["memory"]))]
        ahead = ' class="ahead"' if name == standing.winners.get("smse") else ""
        row = "".join(f"<td>{text(cell)}</td>" for cell in [name, *cells])
        lines.append(f'<tr{ahead}>{row}<td class="why">{text(standing.sentences[name], 200)}</td></tr>')
    return f"<table>{''.join(lines)}</table>"


def _reach(standing: Standing) -> str:
    """Seconds until the lane of a row was as good as the best of the lane of a column."""
    reach = standing.reach
    if len(reach) < 2 or not reach.notna().to_numpy().any():
        return ""
    heads = "".join(f"<th>{text(name)}</th>" for name in reach.columns)
    lines = [
        f"<tr><td>{text(name)}</td>" + "".join(f"<td>{_after(value)}</td>" for value in row) + "</tr>"
        for name, row in zip(reach.index, reach.to_numpy(float), strict=True)
    ]
    said = "Seconds of its own work until the lane of a row had an SMSE as low as the lowest of the lane of a column"
    return f"<p>{said}; — where it never had.</p><table><tr><th></th>{heads}</tr>{''.join(lines)}</table>"


def _after(seconds: float) -> str:
    return "—" if seconds != seconds else f"{seconds:.2g}"
