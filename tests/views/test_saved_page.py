"""A run as one file: each frame has the numbers of its step, names stay text, and the file is small."""

from __future__ import annotations

import gzip
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx
from gpexplorer.errors import SettingError
from gpexplorer.views.saved_page import page_file
from gpexplorer.views.saved_page.recorded_figures import PackedColumns
from saved_pages import frames_of, kinds_of, unpacked

PROBE = "</script><img src=x onerror=alert(1)>"


class Parts(HTMLParser):
    """The elements of a page, and the addresses they name."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action")]


def test_packed_columns_are_the_columns_again_to_what_can_be_seen():
    rng = np.random.default_rng(0)
    far = 1e9 + np.cumsum(rng.standard_normal(100))
    histories = {
        "curves": [np.sin(np.linspace(0, 3, 200) + 0.01 * k) for k in range(5)],
        "far from the origin": [far, far + 1.0, far],
        "rows": [np.arange(90), np.arange(80), np.arange(90)],
        "words": [np.array(["a", "b<"], object)] * 3,
        "grid": [[rng.standard_normal((7, 4))] for _ in range(3)],
        "grids around a constant one": [[scale * rng.standard_normal((7, 4))] for scale in (1.0, 0.0, 3.0)],
        "grids of other sizes": [[7.0 + rng.standard_normal((5 + k, 4))] for k in range(3)],
        "grids of other ranges": [[10.0**k * rng.standard_normal((7, 4))] for k in range(0, 9, 4)],
        "grid with a gap": [[np.array([[1.0, np.nan], [0.0, 2.0]])]] * 2,
        "gaps": [np.array([np.nan]), None, np.array([1.5])],
        "small numbers": [10.0 ** -np.arange(100.0)],
    }
    packed = PackedColumns()
    stored = {name: packed.add(history, name == "small numbers") for name, history in histories.items()}
    blob, start = gzip.decompress(packed.compressed()), 0

    for name, history in histories.items():
        entries, start = unpacked(stored[name], blob, start)
        for content, place in zip(history, stored[name]["at"], strict=True):
            result = entries[place]
            if content is None or name == "words":
                assert result == (None if content is None else ["a", "b<"])
            elif name == "small numbers":
                np.testing.assert_allclose(result, content, rtol=1e-6)
            else:
                wanted = np.asarray(content[0] if name.startswith("grid") else content, float)
                is_grid = name.startswith("grid")
                visible = max(np.ptp(np.nan_to_num(wanted)), 1.0 if is_grid else 1e-9)
                np.testing.assert_allclose(result, wanted, rtol=0, atol=(2.0**-12 if is_grid else 2.0**-16) * visible)
    assert stored["rows"]["at"] == [0, 1, 0]


def test_two_hundred_maps_of_a_surface_that_changes_little_by_little_are_small():
    rng = np.random.default_rng(0)
    axis = np.linspace(0, 1, 48)
    bumps = [np.exp(-((axis[:, None] - x) ** 2 + (axis - y) ** 2) / 0.05) for x, y in rng.random((200, 2))]
    maps = [[sum(bumps[k : k + 20])] for k in range(180)]

    packed = PackedColumns()
    packed.add(maps)

    assert len(packed.compressed()) < 0.2 * sum(grid.astype(np.float32).nbytes for [grid] in maps)


def test_each_frame_has_the_numbers_of_its_step(tmp_path: Path):
    frame = pd.DataFrame({PROBE: np.linspace(-2, 2, 70), "y": np.sin(3 * np.linspace(-2, 2, 70)), "<b>same": 1.0})
    split = gpx.data.load(frame, target="y")
    run = gpx.Spec("cholqr", {"num_inducing": 5}, kernel="se").open(data=split)
    run.finish(steps=12)
    [note] = split.notes
    assert "<b>same" in note

    file = run.save_page(tmp_path / "run.html", title=PROBE)

    page = file.read_text("utf-8")
    content = frames_of(page)
    assert content["names"][-1] == f"step {run.done}"
    for at, facts in enumerate(content["runs"][0]["facts"]):
        assert facts["step"] == str(at)
    sources = content["runs"][0]["figures"][0]["columns"].values()
    [curve] = [source["y"] for source in sources if len(source["y"][0]) == 240]  # no truth is known of these rows
    for at in (0, 4, run.done):
        np.testing.assert_allclose(curve[at], run.plot("fit", at).layers["mean"]["y"], atol=1e-3)
    assert np.abs(curve[0] - curve[-1]).max() > 0.1
    parts = Parts(page)
    assert f'<p class="hint">{escape(note.splitlines()[0])}</p>' in page
    assert "img" not in parts.names
    assert parts.addresses == []
    assert "link" not in parts.names
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    assert file.stat().st_size < 1_500_000


@pytest.mark.parametrize(
    ("method", "settings"), [("gbcd", {"learn": False, "block": 10}), ("grief", {}), ("gpcv-admm", {}), ("scgd", {})]
)
def test_the_pictures_of_every_family_move(method: str, settings: dict[str, object]):
    """That a browser draws such columns is tested in `test_saved_page_in_browser.py`, with one that has all kinds."""
    run = gpx.Spec(method, settings, data={"name": "sin-product", "n": 60, "d": 2}).open()
    run.finish(steps=4)

    page = page_file.page_of(run)

    assert kinds_of(page) <= {"f8", "i4", "g4", "q2", "json"}
    [recorded] = frames_of(page)["runs"]
    assert len(recorded["figures"]) == 3
    moving = []
    for figure in recorded["figures"]:
        histories = [history for columns in figure["columns"].values() for history in columns.values()]
        assert {len(history) for history in histories} == {run.done + 1}
        changes = [repr(history[0]) != repr(history[-1]) for history in histories]
        moving.append(any(changes) or len(figure["properties"]["entries"]) > 1)
    assert all(moving)


def test_a_long_run_keeps_some_frames_and_a_page_that_is_too_large_fewer(monkeypatch: pytest.MonkeyPatch):
    run = gpx.Spec("gbcd", {"block": 1, "learn": False}, data={"name": "snelson-like", "n": 60}).open()
    run.finish(steps=100)
    assert run.done > 50
    monkeypatch.setattr(page_file, "MOST_FRAMES", 40)

    whole = page_file.page_of(run, ["fit"])
    names = frames_of(whole)["names"]
    monkeypatch.setattr(page_file, "LARGEST", len(whole) - 10_000)
    smaller = page_file.page_of(run, ["fit"])

    assert (len(names), names[0], names[-1]) == (40, "step 0", f"step {run.done}")
    assert len(smaller) < len(whole) - 10_000
    assert 5 < len(frames_of(smaller)["names"]) < 40


def test_two_runs_are_aligned_by_step_or_by_seconds(tmp_path: Path):
    runs = {}
    for name, pause in (("slow", 1.0), ("fast", 0.25)):
        ticks = iter(np.arange(0, 1e3, pause))
        spec = gpx.Spec("cholqr", {"num_inducing": 4}, data="snelson-like", kernel="se")
        opened = spec.open()
        runs[name] = gpx.Run(
            opened.method, opened.problem, opened.split, spec=spec, clock=lambda ticks=ticks: next(ticks)
        )
        for _ in range(5):
            runs[name].advance()

    file = gpx.Compare(runs).save_page(tmp_path / "two.html", "convergence")
    by_step = frames_of(file.read_text("utf-8"))
    by_time = frames_of(page_file.page_of(runs, ["convergence"], by="seconds"))

    assert by_step["frames"] == [[k, k] for k in range(5)]
    table = {name: run.table()["seconds"] for name, run in runs.items()}
    assert table["slow"].iloc[1] > table["fast"].iloc[3]
    for name, (slow, fast) in zip(by_time["names"], by_time["frames"], strict=True):
        second = float(name.removesuffix(" s of work"))
        assert table["slow"].iloc[slow] <= max(second, table["slow"].iloc[0])
        assert table["fast"].iloc[fast] <= max(second, table["fast"].iloc[0])
        assert fast == 4 or table["fast"].iloc[fast + 1] > second
    with pytest.raises(SettingError, match="aligned by step or seconds"):
        page_file.page_of(runs, by="rows")
    with pytest.raises(SettingError, match="there are 1: compare two runs"):
        gpx.Compare(list(runs.values())[:1]).save_page(tmp_path / "one.html")


def test_mistakes_get_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = gpx.Spec("random", {"num_inducing": 4}, data="snelson-like").open()
    with pytest.raises(SettingError, match="has no record to draw yet"):
        run.save_page(tmp_path / "run.html")
    run.advance()
    with pytest.raises(SettingError, match="has no picture 'fti'"):
        run.save_page(tmp_path / "run.html", "fti")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(page_file, "page_of", lambda *_, **__: pytest.fail("the page was made first"))
    (tmp_path / "folder.html").mkdir()
    for place in ("missing/run.html", "folder.html"):
        with pytest.raises(SettingError, match="Cannot write"):
            run.save_page(tmp_path / place)
