"""The explorer: data, kernel and settings on one side, a run that plays on the other.

`Explorer(spec)` is a plain layout for a notebook cell; `page.app` puts the same parts into a page of their own.
"""

from __future__ import annotations

import time
import weakref
from functools import partial
from typing import Any

import panel as pn
import param

from .. import data as data_sets
from ..errors import GPExplorerError, SettingError
from ..runs import Run, Spec, Store
from ..runs import link as links
from ..views.base import registry as views
from ..views.picture import Picture
from .address import OWN_ROWS, PageRequest, read_query, write_query
from .browser.callbacks import follow, repeat, together
from .browser.components import HELP, AddressBar, Pulse
from .inputs.controls import Controls
from .inputs.data_source import DataSource
from .inputs.field import Field
from .inputs.presets import PRESETS, not_opened, question
from .inputs.sliders import HyperparameterBox
from .notebook.shown_in_cells import mimebundle
from .page import LivePage, explorer_in_host, explorer_page, in_own_design, load_resources
from .panels.panels_below import PanelsBelow
from .panels.recommend_panel import RecommendPanel
from .panels.share_panel import sheet, written
from .panels.story_panel import StoryPanel
from .pictures.picture_cards import Pictures
from .playback.open_run import Frame, RunSummary
from .playback.status import Status
from .playback.transport import Transport
from .session import Session
from .shared_limits import Shares
from .stories import STORIES
from .styles import HEAD, TEXT
from .text import record, sentence

CELL_HEIGHT = 860  # pixels of the page in a notebook cell
PERIOD = 60  # milliseconds between two looks for a new frame
FIRST_PICTURE_WAIT = 0.5  # seconds that building a page waits at most for its first picture
STATIC_PICTURE_WAIT = 3.0  # seconds that a cell waits at most for the run of its static picture
ADDRESS_PERIOD = 2.0  # seconds between two changes of the address while a run plays
STORY = "story:"  # begins the value of a story in the list of questions
START = {"method": "cholqr", "settings": {"num_inducing": 10}, "kernel": "se", "budget": {"steps": 300}}


class Explorer(LivePage):
    """A run that one can play, pause, rewind and change by hand.

    `spec`, `run`, `at` and `playing` are parameters: they say what is on the screen, they can be watched, and setting
    one of them does what a person would do on the page.

    Parameters
    ----------
    spec : Spec, optional
        What to open first; by default CholQR swaps on a one-dimensional data set. A widget, a parameter or a bound
        function whose value is a Spec is followed.
    data : object, optional
        Rows in memory (a `Split`, arrays or a data frame), where no data set name in the spec brings them.
    store : Store, optional
        Where runs and notes that a person keeps stay; the runs in it can be looked at. By default nothing is stored.
    shares : Shares, optional
        The memory and the cores that the sessions of a server share. By default this explorer has all.
    wait_message : str, default ""
        A message. Where it is not empty, the run is opened only when a person asks for its first step.
    **params : object
        `run`, `at` and `playing`, also as references to follow, and the parameters of `panel.viewable.Viewer`.

    Raises
    ------
    SettingError
        Where `spec` is not a `Spec` or `store` is not a `Store`.

    Examples
    --------
    As the last line of a notebook cell:

    >>> import gpexplorer as gpx
    >>> gpx.Explorer(gpx.Spec("cholqr", {"num_inducing": 16}, data="snelson-like"))  # doctest: +SKIP
    """

    spec = param.ClassSelector(class_=Spec, doc="What is open. Setting it opens another run.")
    run = param.ClassSelector(class_=Run, doc="The open run, for reading. Setting it shows this run where it is.")
    at = param.Integer(
        0, bounds=(0, None), doc="Index of the record shown. Setting it shows another, or runs up to it."
    )
    playing = param.Boolean(False, doc="Whether the run takes steps. Setting it plays or pauses.")

    @in_own_design()
    def __init__(
        self, spec: Any = None, data: Any = None, store: Store | None = None,
        shares: Shares | None = None, wait_message: str = "", **params: Any,
    ) -> None:  # fmt: skip
        begin = follow(self, {name: params.pop(name) for name in ("run", "at", "playing") if name in params})
        followed = follow(self, {"spec": spec})["spec"]
        spec = Spec(**START) if followed is None else followed
        if not isinstance(spec, Spec) or not isinstance(store, Store | None):
            raise SettingError("An Explorer takes a Spec and a Store: give Explorer(spec), run=run, or data=rows.")
        super().__init__(spec=spec, **params)
        load_resources()
        self._opening, self._addressed_at, self._waiting, self._failed = 0, 0.0, "", ""
        self._address: AddressBar | None = None
        self._addressed: tuple[Any, ...] | None = None  # what the address names; None while it may be corrected
        self._hidden: frozenset[str] = frozenset()
        self.status, self.pulse = Status(self._name_failure), Pulse(self.update)
        read_rows = None if data is None else partial(data_sets.load, data)
        self.session = Session(spec, read_rows, store, shares, report=self.status.report, adopt=self._adopt_spec)
        self.transport = Transport(self.session.player, self.session.open, self.session.undo)
        playback = self.status.beside(self.transport, self.transport.speed)
        self.pictures = Pictures(self.session)
        self.below = PanelsBelow(self.session, self._export, self.pictures.options)
        self.title = pn.pane.HTML("", margin=(4, 12, 2, 12), sizing_mode="stretch_width", stylesheets=[TEXT, HEAD])
        self.sources = DataSource(spec, self._change_rows, partial(self.status.report, severity="error"), self._wait)
        self.hyperparameters = HyperparameterBox(self.session)
        self.sources.adopt(spec, in_memory=data is not None)
        self.choices = Controls(spec, self._controls_changed, self.sources, [self.hyperparameters])
        questions = {"—": {"—": ""}, "Questions": {preset.question: key for key, preset in PRESETS.items()}}
        questions["Stories"] = {story.title: f"{STORY}{key}" for key, story in STORIES.items()}
        self.presets = Field("Begin with a question", "", self._choose_preset, questions)
        self.story = StoryPanel(self.session, self._show_part, on_leave=self._end_story)
        self.recommendation = RecommendPanel(self.session, self.sources.own.choose_again)
        self.session.panels.append(self.recommendation)
        self.top: list[Any] = [
            self.status.alert, self.story, self.title, self.sources.own.picker, self.recommendation, playback,
            self.status, self.pictures.top,
        ]  # fmt: skip
        self.rest: list[Any] = [self.pictures.tabs, self.below]
        self.openers: list[Any] = [self.recommendation.begin, self.sources.own.again]
        self._finalizer = weakref.finalize(self, self.session.player.close)
        self._name_run(None)
        self._wait_message = wait_message
        if wait_message:
            self.session.prepare(wait_message)
        else:
            self.session.open()
        self._asked = 0
        self.param.watch(self._carry_out, ["spec", "run", "at", "playing"])
        end = time.monotonic() + (STATIC_PICTURE_WAIT if pn.state.curdoc is None else 0.0)
        while self.run is None and not (wait_message or self._failed) and time.monotonic() < end:
            self.update(wait=0.05, is_seen=False)  # in a script or a cell, `run` and `at` are read at once
        self.param.update(**begin)

    @property
    def controls(self) -> list[Any]:
        """The parts of the sidebar; in a cell or in another application, a list stands for the page of cards."""
        begin = [self.presets] if self._address is None else []
        return [*begin, self.choices, self.sources.own, self.recommendation.begin]

    @property
    def tools(self) -> list[str]:
        """The titles of the panels that the bar names; none where the address leaves the panels out."""
        return self.below.titles[:-1] if "panels" not in self._hidden else []

    def adopt(self, request: PageRequest) -> None:
        """Show what an address asks for besides its spec: step, picture, question, and what had to be corrected."""
        link, remarks = request.link, list(request.link.corrected)
        self.session.question = request.question
        if request.story != self.story.story:
            self.story.leave()
        if request.story:
            self.story.open(request.story, request.part)
            self.title.visible = False
        if link.at and not self._wait_message:
            remarks.append(self.session.replay(link.at))
        self.pictures.first = link.view
        self.below.visible = "panels" not in request.hide
        self._hidden = request.hide
        if any(remarks):
            self.status.say(" ".join(filter(None, remarks)))

    def follow_address(self) -> AddressBar:
        """Return the component that keeps the address of the page up to date, for a page that has an address."""
        self._address = AddressBar(self._go_back)
        return self._address

    def key(self, pressed: str) -> None:
        """Carry out the command of this key."""
        if pressed == "?":
            self.status.say(HELP, "info")
        elif pressed == "Escape":
            self.status.report("")
        self.transport.key(pressed)

    def set_dark(self, dark: bool) -> None:
        """Draw the figures for the dark theme, or for the light one."""
        with together():
            self.session.theme.set_dark(dark)

    def start(self) -> None:
        """Begin to take frames from the player: from now on the page follows the run."""
        if self._stop is None:
            self._stop = repeat(self.update, PERIOD)

    def settle(self) -> None:
        """Wait shortly for the first picture, so that a page is sent with it where its data are quick to read."""
        if self.pictures.drawn():
            return
        with self.pictures.hurried():
            self.update(wait=FIRST_PICTURE_WAIT)

    def pause(self) -> None:
        """Stop computing after the step under way once no browser shows the page."""
        self.session.pause()

    def close(self) -> None:
        """End all threads and free the run; for a session that is over."""
        self._stop_following()
        self._is_following, self.run = True, None  # nothing is opened any more
        self._finalizer()
        self.session.close()
        self._end_widgets("This explorer is closed. Run the cell again for a new one.")

    def _carry_out(self, *events: Any) -> None:
        """Do what was asked for by setting parameters from outside."""
        if self._is_following:
            return
        session, player = self.session, self.session.player
        for event in sorted(events, key=lambda event: ("run", "spec", "at", "playing").index(event.name)):
            if event.new is None:  # such as the value of an empty widget: what is open stays
                self._follow_run(self.at, player.asked)
            elif event.name == "run":
                session.show(event.new)
            elif event.name == "spec" and event.new.data == session.spec.data:
                session.adopt(event.new)
            elif event.name == "spec":
                session.choose(event.new)
            elif event.name == "at" and (steps := event.new - (player.run.done if player.run is not None else 0)) > 0:
                player.run_to(steps)
            elif event.name == "at":
                player.seek(event.new)
            elif event.name == "playing":
                player.play() if event.new else player.pause()
        self._asked = player.asked

    def _follow_run(self, at: int, answered: int) -> None:
        """Let the parameters say what is on the screen. A frame from before the newest request does not undo it."""
        if answered >= self._asked:
            player = self.session.player
            self._follow_screen(spec=self.session.spec, run=player.run, at=at, playing=player.playing)

    def _export(self, note: str) -> str:
        """The pictures on the screen as one HTML file, under the question, the status line and this note."""
        heading = [self._question(self._named, still=True), str(self.status.line.object), written(note)]
        return sheet(self.session.screen.spec, heading, self.pictures.drawn(), self.session.theme.name)

    def _adopt_spec(self, spec: Spec) -> None:
        self.choices.adopt(spec)
        self.sources.adopt(spec, in_memory=self.session.read is not None)

    def _choose_preset(self) -> None:
        value = str(self.presets.value)
        if value:
            name = value.removeprefix(STORY)
            self._open_query(f"{'story' if value.startswith(STORY) else 'ask'}={name}", hide=frozenset())

    def _show_part(self, query: str) -> None:
        """Open the run of a part of a story, or that of its answer, and its picture, at its step.

        What lies further on in the run on the screen, in the same picture, is reached by more steps.
        """
        link, screen, run = links.read(query, Spec(**START), views), self.session.screen, self.session.player.run
        goes_on = (link.spec, link.view, False) == (screen.spec, screen.view, screen.by_hand)
        if run is not None and goes_on and (link.at or 0) > run.done:
            self.session.player.run_to((link.at or 0) - run.done)
            return
        self.pictures.first = link.view
        self.session.choose(link.spec, link.at)

    def _end_story(self) -> None:
        """Show everything that a story leaves out."""
        self.title.visible = self.below.visible = True

    def _go_back(self, query: str) -> None:
        """Open what an address of the browser's history asks for."""
        self._addressed = None
        if not (read_query(query, Spec(**START)).own_rows and self.sources.open_own()):
            self._open_query(query)

    def _open_query(self, query: str, **changes: Any) -> None:
        request = read_query(query, Spec(**START))._replace(**changes)
        self.session.choose(request.link.spec)
        self.adopt(request)

    def _change_rows(self, data: Any, read: Any, kernel: str) -> None:
        """Open other rows; of rows of one's own, the question is what predicts their target."""
        self.session.change_rows(data, read, kernel)
        if read is not None:
            self.choices.sections.unfold("Data")
            self.recommendation.forget()
            self.recommendation.open()

    def _controls_changed(self) -> None:
        try:
            spec = self.choices.apply_to(self.session.spec)
        except Exception as error:  # a browser can send any value, not only those that the widgets offer
            self.status.say(sentence(error, "the settings were being read"))
            return
        self.session.change(spec)

    def _wait(self, what: str) -> None:
        self._waiting = what
        self.status.busy(what)

    def update(self, wait: float = 0.0, is_seen: bool = True) -> None:
        """Take the newest frame of the run and show it; a page calls this by itself, a script may.

        All changes of a frame are sent together. An error becomes a message: otherwise it would stand in the log only.

        Parameters
        ----------
        wait : float, default 0.0
            Seconds to wait at most for a frame with a picture.
        is_seen : bool, default True
            Whether somebody looks: otherwise no picture is drawn.
        """
        if not (wait or self.pulse.free):
            return
        self.pictures.look(is_seen)
        with together():
            for panel in list(self.session.panels):
                panel.update()
            frame = self.session.take(wait)
            if frame is None:
                return
            try:
                self._show(frame)
                self.pulse.send()
            except Exception as error:
                self.status.say(sentence(error, "the page was being drawn"))

    def _show(self, frame: Frame) -> None:
        run = frame.run
        if run is not None and frame.opening != self._opening:
            self._opening = frame.opening
            self._name_run(run)
            self.sources.describe(run.rows, run.test_rows, run.inputs, run.notes)
            self.choices.describe(run.rows)
        if frame.failed != self._failed:
            self._failed = frame.failed
            self.pictures.set_stale(bool(self._failed), self.status.line, self.status.bar)
            if not self._failed:
                self._name_run(run)
        working_since = self.session.player.working_since
        self.transport.update(frame)
        self.pictures.axes = self.story.axes
        self.pictures.update(frame)
        self.hyperparameters.update(frame)
        self.status.update(frame, time.monotonic() - working_since if working_since else 0.0)
        self.session.show_view(self.pictures.chosen)
        if frame.numbers is not None and not frame.busy:
            self._follow_run(frame.numbers.at, frame.answered)
        self.status.busy(frame.busy or self._waiting)
        if self._address is not None and not (frame.busy or frame.failed):
            self._write_address(self._address, frame.playing)

    def _write_address(self, address: AddressBar, is_playing: bool) -> None:
        """Let the address name what is open; while it plays, at a change of settings and from time to time."""
        screen, story = self.session.screen, self.story.story
        link = links.Link(screen.spec, screen.view, 0 if screen.by_hand else screen.step)
        request = PageRequest(link, "" if story else self.session.question, self._hidden, story, self.story.number)
        addressed, clock = (screen.key, request.question, story, request.part), time.monotonic()
        if is_playing and addressed == self._addressed and clock < self._addressed_at + ADDRESS_PERIOD:
            return
        try:
            query = write_query(request, Spec(**START))
        except GPExplorerError:
            query = OWN_ROWS
        address.show_query(query, is_new=self._addressed not in (None, addressed))
        self._addressed, self._addressed_at = addressed, clock

    def _name_run(self, run: RunSummary | None) -> None:
        self._named = run
        self.title.object = self._question(run)
        self.recommendation.ask_about(self._target(run))

    def _question(self, run: RunSummary | None, still: bool = False) -> str:
        session, rows = self.session, run.rows if run else None
        return question(session.spec, rows, session.question, self._target(run), session.answer, still)

    def _target(self, run: RunSummary | None) -> str:
        """The column to predict in rows of one's own, or ""."""
        return run.target if run is not None and self.session.read is not None else ""

    def _name_failure(self) -> None:
        """Say that the newest run could not be opened, and why, once the message that says why has been closed."""
        if self._failed:
            reason = "" if self.status.shows(self._failed) else self._failed
            self.title.object = not_opened(reason, bool(self.pictures.pictures))

    def __panel__(self) -> Any:
        self._stop_following()
        return explorer_in_host(self, self.leave)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What a notebook cell shows: the page, live, and its first pictures for a saved notebook."""
        return mimebundle(self, self._page, "Explorer", CELL_HEIGHT, self._static_picture())

    def _static_picture(self) -> str:
        """The picture of the fit at the first step, as SVG; empty where it takes long to open the run."""
        end = time.monotonic() + STATIC_PICTURE_WAIT
        while (run := self.session.run) is None or not len(run.trace):
            if self._wait_message or time.monotonic() > end:
                return ""
            time.sleep(0.02)
        try:
            return Picture(run, "fit").svg()
        except Exception as error:  # the live page says what is wrong
            record(error, "the picture of an explorer was being drawn")
            return ""

    def _page(self) -> Any:
        """Build the page of a cell. One view at a time shows an explorer, so the one before is closed."""
        return explorer_page(self, self.leave, dark=self._begin_page())
