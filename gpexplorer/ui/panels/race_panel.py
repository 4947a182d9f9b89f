"""The race panel: the choice of methods and seconds, the scoreboard, and the curves of the lanes."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd
import panel as pn
import panel_material_ui as pmui

from ...data.quoting import data_title, size
from ...errors import SettingError
from ...methods.base import registry
from ...runs import Spec
from ...runs.setting_checks import typed_value
from ...runs.studies.race import METRICS, Lane, Race
from ...runs.studies.setting_labels import setting_in_words
from ...views.runs.comparison_charts import Lanes
from ..pictures.chart import Chart
from ..playback.background_worker import BackgroundWorker
from ..session import Session
from ..shared_limits import Reservation, Turns
from ..tables import TABLE, html_table
from ..text import number, sentence, span, text
from ..widgets import WIDE, button, column, line_of_text, number_in, row, select, share_of_row, whole
from .study_panel import StudyPanel

DEFAULT_METHODS = ("cholqr", "greedy-variance", "pcg", "grief")
MOST_SECONDS = 3600.0  # of one lane
MOMENTS = (1, 3, 10, 30)  # seconds at which the scoreboard shows the scores
LONGEST_LANES = 600  # letters of the lanes with other settings
LONGEST_VERDICT = 900  # letters of a sentence with the names of two of them
HEIGHT = 260  # pixels
ENGINE, SEPARATOR = "engine", "@"  # "sgpr@gpytorch" is method sgpr with setting engine="gpytorch"
NONE = {"—": ""}
TWICE = "There are two lanes {}: leave one out, or give it another setting."
RACED = "Race, {} over seconds of computation"  # name of a saved picture
ACROSS = {"sizing_mode": "stretch_width", "min_width": 280, "margin": (6, 8)}


class Standing(NamedTuple):
    """The state of a race as the page shows it.

    Attributes
    ----------
    board : DataFrame
        The records of all lanes.
    note, table, reach : str
        Who leads, the scoreboard, and who needed how long to reach whom, as markup.
    sentences : dict of str to str
        For each lane why it has ended; empty while it runs.
    """

    board: pd.DataFrame
    note: str
    table: str
    reach: str
    sentences: dict[str, str]


class RaceWorker(BackgroundWorker):
    """The thread of a race: it takes turns while the race is played.

    Parameters
    ----------
    seconds : float
        A lane is stopped after this many seconds of computation.
    turns : Turns
        The cores that the sessions of a server share.
    memory : Reservation
        What the lanes have reserved; it is given back when the race is over.
    """

    def __init__(self, race: Race, seconds: float, turns: Turns, memory: Reservation) -> None:
        super().__init__("gpexplorer-race")
        self.race, self._seconds, self._turns, self._memory = race, seconds, turns, memory
        self._playing = threading.Event()
        self._standing: Standing | None = None
        self._played = 0.0  # seconds on the clock, without pauses
        self.start()

    @property
    def playing(self) -> bool:
        """Whether the race is being played."""
        return self._playing.is_set() and not self.closed.is_set()

    def play(self) -> None:
        """Take turns until the race is paused or over."""
        self._playing.set()

    def pause(self) -> None:
        """Stop after the current turn."""
        self._playing.clear()

    def stop(self, name: str) -> None:
        """Stop one lane after its current step; the other lanes get its turns."""
        self.race.stop(name, "Stopped by the user.")
        run = self.race.lanes[name].run
        if run is not None:
            run.stop()

    def take(self) -> Standing | None:
        """Return the newest standing, or None if there is none since the last call."""
        standing, self._standing = self._standing, None
        return standing

    def close(self) -> None:
        """End the thread after the current step and free the memory of all lanes."""
        super().close()
        self._playing.set()
        for lane in self.race.lanes.values():
            if lane.run is not None:
                lane.run.stop()

    def work(self) -> None:
        """Take turns until the race is over or `close` is called."""
        while self._playing.wait() and not self.closed.is_set():
            begin = time.monotonic()
            try:
                with self._turns.turn():
                    lane = self.race.advance()
            except Exception as error:  # the lane with the least time granted had its turn: stop it, keep the others
                running = [lane for lane in self.race.lanes.values() if not lane.over]
                lane = min(running, key=lambda lane: lane.granted)
                self.race.stop(lane.name, sentence(error, "the lane was running"))
            if lane is not None and lane.seconds >= self._seconds:
                self.race.stop(lane.name, f"Its {self._seconds:g} seconds are used up.")
            self._standing = standing(self.race, self._played + time.monotonic() - begin)
            self._played += time.monotonic() - begin
            if lane is None:
                break
        self.race.close()
        self._memory.give_back()
        self.closed.set()


def standing(race: Race, wall: float = 0.0) -> Standing:
    """Return the current state of a race, which was played for so many seconds on the clock."""
    board, sentences = race.board(), {lane.name: lane.sentence for lane in race.lanes.values()}
    said = race.verdict()  # who is ahead, and whether the test rows can tell
    if said and wall:
        said.append(f"Wall-clock so far: {span(wall)}, scoring and drawing included.")
    note = " ".join(text(part, LONGEST_VERDICT) for part in said)
    return Standing(board, note, _table(race, board), _reach(race.time_to_reach("smse")), sentences)


class RacePanel(StudyPanel):
    """A race of several methods on the rows that are open in `session`."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.methods = pmui.MultiChoice(
            label="Methods",
            options=entrants(),
            value=[key for key in DEFAULT_METHODS if key in registry],
            description="Each method gets one lane and its default settings.",
            **ACROSS,
        )
        hint = "One lane per part between semicolons: the key of a method, and its settings."
        example = "cholqr num_inducing=512; sgpr num_inducing=128"
        self.lanes = pmui.TextInput(
            label="Lanes with other settings", placeholder=example, description=hint, max_length=LONGEST_LANES, **ACROSS
        )
        hint = "Seconds of computation, without scoring and drawing."
        self.seconds = whole("Seconds per method", 10, 1, int(MOST_SECONDS), 190, size="medium", description=hint)
        self.go = button("Race", "flag", self.toggle, variant="contained")
        self.again = button("New race", "replay", self.reset)
        hint = "The lane stops after its current step. Its results stay on the scoreboard."
        self.out = select("Stop one lane", NONE, "", 220, size="medium", visible=False, description=hint)
        self.out.param.watch(lambda event: self._stop(event.new), "value")
        self.table, self.reach = (line_of_text(margin=(4, 12), styles=[TABLE]) for _ in range(2))
        self._on = ""  # which data, because others may be opened while the race is on the page
        self._charts: dict[str, Chart] = {}
        self.pictures = row(**WIDE, min_height=HEIGHT, visible=False)
        head = row(self.methods, self.lanes, self.seconds, self.go, self.again, self.out, gap="4px")
        self._layout = column(head, self.note, self.table, self.pictures, self.reach)

    def toggle(self) -> None:
        """Start, pause or continue the race."""
        if self._worker is None:
            self._begin()
        elif self._worker.playing:
            self._worker.pause()
        else:
            self._worker.play()
        self._show_playing()

    def reset(self) -> None:
        """Discard this race, so that another one can be started."""
        self.close()
        self.table.object, self.note.object, self.reach.object, self.pictures.visible = "", "", "", False
        self._offer_lanes({})
        self._show_playing()

    def update(self) -> None:
        """Show the newest standing of the race, or what is missing to begin one."""
        self.require("" if self._worker is not None else self._session.missing_settings, self.go)
        standing = self._worker.take() if self._worker is not None else None
        if standing is None:
            return
        self.table.object, self.reach.object = standing.table, standing.reach
        self.note.object = f"{self._on} {standing.note}"
        self._offer_lanes(standing.sentences)
        for metric, chart in self._charts.items():
            chart.show(self._lanes[metric], self._lanes[metric].data(standing.board), RACED.format(METRICS[metric]))
        self._show_playing()

    def pause(self) -> None:
        """Pause the race once no browser shows the page."""
        if self._worker is not None:
            self._worker.pause()
            self._show_playing()

    def _begin(self) -> None:
        if self.start("a race", self._racing):
            race = self._worker.race
            self._on = text(f"On {data_title(self._session.spec.data)}.")
            self.say(race.policy)
            self._draw(list(race.lanes))
            self._offer_lanes({name: "" for name in race.lanes})
            self._worker.play()

    def _racing(self) -> RaceWorker:
        spec, read = self._session.spec, self._session.read
        titles = {value: title for title, value in entrants().items()}
        chosen = [value for value in self.methods.value or [] if value in titles]
        specs = {titles[value]: _lane(spec, value) for value in chosen}
        typed = lanes_of_text(spec, str(self.lanes.value or ""))
        for name in typed.keys() & specs.keys():
            raise SettingError(TWICE.format(name))
        specs |= typed
        seconds = number_in(self.seconds)
        self._session.begin_study("a race")
        memory, rows = self._session.shares.reservation(), self._session.rows()

        def admit(lane: Lane) -> None:
            memory.add(lane.spec, rows)

        race = Race(specs, data=(lambda: read(spec.split)) if read else None, admit=admit)
        return RaceWorker(race, seconds, self._session.shares.turns, memory)

    def _offer_lanes(self, sentences: dict[str, str]) -> None:
        """Offer the lanes that are still running in the selector that stops a lane."""
        running = {name: name for name, sentence in sentences.items() if not sentence}
        if list(running.values()) != list(self.out.options.values())[1:]:
            self.out.param.update(options=NONE | running, value="", visible=bool(running))

    def _stop(self, name: str) -> None:
        if name and self._worker is not None:
            self._worker.stop(name)

    def _draw(self, names: list[str]) -> None:
        self._lanes = {metric: Lanes(names, metric) for metric in METRICS}
        empty = pd.DataFrame({"lane": [], "seconds": [], **{metric: [] for metric in METRICS}})
        self._charts = {metric: Chart(self._session.theme, HEIGHT) for metric in METRICS}
        for metric, lanes in self._lanes.items():
            self._charts[metric].show(lanes, lanes.data(empty), RACED.format(METRICS[metric]))
        self.pictures[:] = [pn.Column(chart, styles=share_of_row(330)) for chart in self._charts.values()]
        self.pictures.visible = True

    def _show_playing(self) -> None:
        worker = self._worker
        over = worker is not None and worker.race.over
        if over or worker is None:
            label, icon = ("Over", "sports_score") if over else ("Race", "flag")
        else:
            label, icon = ("Pause", "pause") if worker.playing else ("Continue", "flag")
        self.go.param.update(label=label, icon=icon, disabled=over)


def entrants() -> dict[str, str]:
    """Return {title: value} of all lanes: every method, and GPyTorch as the engine of those that offer it."""
    lanes = {method.title: key for key, method in registry.items()}
    engines = {key: method.param.objects().get(ENGINE) for key, method in registry.items()}
    with_gpytorch = [key for key, engine in engines.items() if "gpytorch" in getattr(engine, "objects", ())]
    return lanes | {f"{registry[key].title}, by GPyTorch": f"{key}{SEPARATOR}gpytorch" for key in with_gpytorch}


def _lane(spec: Spec, value: str) -> Spec:
    key, _, engine = value.partition(SEPARATOR)
    return replace(spec, method=key, settings={ENGINE: engine} if engine else {}, budget={})


def lanes_of_text(spec: Spec, written: str) -> dict[str, Spec]:
    """The lanes of a text such as "cholqr num_inducing=512; sgpr num_inducing=128", by names with their settings.

    Raises
    ------
    SettingError
        If a method or a setting is not known, a part is not of this form, or two lanes are equal.
    """
    specs = {}
    for part in filter(None, map(str.strip, written[:LONGEST_LANES].split(";"))):
        key, *words = part.split()
        settings: dict[str, Any] = {}
        for word in words:
            name, equals, value = word.partition("=")
            if not equals:
                raise SettingError(f"{word!r} in {part!r} is no setting: write name=value, such as num_inducing=512.")
            if name in settings:
                raise SettingError(f"{name} is there twice in {part!r}: write each setting once.")
            settings[name] = typed_value(value)
        lane = replace(spec, method=key, settings=settings, budget={})
        words = [setting_in_words(key, name, value) for name, value in settings.items()]
        title = ", ".join([registry[key].title, *words])
        if title in specs:
            raise SettingError(TWICE.format(title))
        specs[title] = lane
    return specs


def _table(race: Race, board: pd.DataFrame) -> str:
    """The scoreboard: SMSE at several moments, current SMSE and SNLP, seconds, memory, and why a lane stopped.

    The lane with the lowest SMSE is bold, and so are those that the test rows cannot tell from it.
    """
    longest = max((lane.seconds for lane in race.lanes.values()), default=0.0)
    reached = [moment <= longest for moment in MOMENTS]  # a time that no lane has reached has no figure
    scores, notes = race.scoreboard("smse", MOMENTS).loc[:, reached], race.variance_notes()
    headings = ["", *(f"SMSE at {m}" for m in scores.columns), "SMSE now", "SNLP now", "seconds", "memory", ""]
    lines = []
    for name in scores.index:
        lane, lane_rows = race.lanes[name], board[board["lane"] == name]
        latest = lane_rows.iloc[-1] if len(lane_rows) else None
        cells = [number(float(value)) for value in scores.loc[name]]
        cells += ["—"] * 2 if latest is None else [number(float(latest["smse"])), number(float(latest["snlp"]))]
        if latest is not None and notes[name]:
            cells[-1] += f" ({notes[name]})"
        cells += [f"{lane.seconds:.1f}", "—" if latest is None else size(float(latest["memory"]))]
        lines.append([name, *cells, lane.sentence])
    best = {race.winners().get("smse"), *race.not_told_apart("smse")}
    ahead = [k for k, name in enumerate(scores.index) if name in best]
    return html_table(headings, lines, ahead)


def _reach(reach: pd.DataFrame) -> str:
    """The seconds that the lane of a row needed to reach the best SMSE of the lane of a column."""
    if len(reach) < 2 or not reach.notna().to_numpy().any():
        return ""
    values = [["—" if value != value else f"{value:.2g}" for value in row] for row in reach.to_numpy(float)]
    rows = [[name, *cells] for name, cells in zip(reach.index, values, strict=True)]
    caption = "Seconds of computation until the method of a row reached the lowest SMSE of the method of a column"
    return f"<p>{caption} (—: never).</p>{html_table(['', *reach.columns], rows)}"
