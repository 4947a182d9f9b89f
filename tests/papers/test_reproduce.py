"""Figures computed anew: kept piece by piece, gone on with, written as a table and a page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import holoviews as hv
import pandas as pd
import pytest

import papers
from gpexplorer.errors import SettingError
from papers.__main__ import main
from papers.base import REPEATED, SECONDS, Figure, Rows, Unit


def figure(done: list[int], stop_at: int | None = None) -> Figure:
    def work(unit: Unit) -> Rows:
        if unit["n"] == stop_at:
            raise KeyboardInterrupt
        done.append(unit["n"])
        return [{"n": unit["n"], "square": unit["n"] ** 2}]

    return Figure(
        name="squares",
        title="Squares",
        paper="The paper printed 1, 4, 9.",
        units=lambda full: [{"n": n} for n in range(1, 6 if full else 4)],
        work=work,
        plot=lambda frame: hv.Scatter(frame, "n", "square"),
    )


def test_pieces_done_are_kept_and_not_done_again(tmp_path: Path):
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        list(figure(done, stop_at=3).run(tmp_path))
    assert pd.read_parquet(tmp_path / "squares.parquet")["square"].tolist() == [1, 4]

    lines = list(figure(done).run(tmp_path))

    assert done == [1, 2, 3]
    assert lines[0].startswith("2 of 3 pieces are in ")
    assert lines[-1].startswith("The paper printed 1, 4, 9.")
    table = pd.read_parquet(tmp_path / "squares.parquet")
    assert table["square"].tolist() == [1, 4, 9]
    assert (table[SECONDS] >= 0.0).all()
    assert figure([]).rows(tmp_path, False).columns.tolist() == ["n", "square"]
    assert replace(figure([]), name="twin", cells="squares").missing(tmp_path, False) == []
    page = (tmp_path / "squares.html").read_text()
    assert "<title>Squares</title>" in page
    assert not re.findall(r"<[^>]* (src|href)=\"http", page)


def test_processes_that_are_started_together_share_the_pieces_and_lose_none(tmp_path: Path):
    done: list[int] = []
    one, two = figure(done).run(tmp_path), figure(done).run(tmp_path)
    first, _, second = next(one), next(two), next(two)

    def work(unit: Unit) -> Rows:  # a third process is started while this piece is in work
        if not lines:
            lines.extend(replace(figure(done), work=work).run(tmp_path, full=True))
        return figure(done).work(unit)

    lines: list[str] = []
    list(one)
    list(replace(figure(done), work=work).run(tmp_path, full=True))

    assert (first[:6], second[:6]) == ("1 of 3", "1 of 2")
    assert done == [1, 2, 3, 5, 4]
    assert "1 pieces are computed by other processes" in lines[-3]
    assert sorted(pd.read_parquet(tmp_path / "squares.parquet")["n"]) == [1, 2, 3, 4, 5]
    assert not list(tmp_path.glob("*.claim"))


def test_quick_pieces_serve_the_full_version_but_not_the_other_way(tmp_path: Path):
    done: list[int] = []
    list(figure(done).run(tmp_path, full=True))

    lines = list(figure(done).run(tmp_path))

    assert done == [1, 2, 3, 4, 5]
    assert "25" not in lines[1]


def test_fewer_repeats_are_part_of_all_and_are_not_computed_twice(tmp_path: Path):
    done: list[tuple[str, int]] = []

    def work(unit: Unit) -> Rows:
        done.append((unit["method"], unit["seed"]))
        return [{"seed": unit["seed"], "method": unit["method"]}]

    repeated = replace(
        figure([]),
        units=lambda full: [{"method": name, "seed": seed} for seed in range(4) for name in ("one", "two")],
        work=work,
        plot=lambda frame: hv.Scatter(frame, "seed", "method"),
    )
    two = repeated.limited(2)

    *_, last = two.run(tmp_path)

    assert done == [("one", 0), ("two", 0), ("one", 1), ("two", 1)]
    assert last.startswith("The paper printed 1, 4, 9. Here each piece has at most 2 repeats.")
    list(repeated.run(tmp_path))
    assert len(done) == len(set(done)) == 8
    assert sorted(set(two.rows(tmp_path, False)["seed"])) == [0, 1]


def test_a_piece_that_was_stopped_is_kept_until_it_has_run_longer(tmp_path: Path):
    whole = replace(
        figure([]),
        units=lambda full: [{"n": n, "seconds": 100.0} for n in (1, 2)],
        work=lambda unit: [{"n": unit["n"], "square": unit["seconds"]}],
    )
    list(whole.within(5.0).run(tmp_path))
    list(whole.within(2.0).run(tmp_path))
    assert (whole.within(5.0).missing(tmp_path, False), len(whole.missing(tmp_path, False))) == ([], 2)
    assert whole.rows(tmp_path, False)["square"].tolist() == [5.0, 5.0]
    list(whole.only(["1"]).run(tmp_path))
    assert whole.rows(tmp_path, False)["square"].tolist() == [5.0, 100.0]
    assert len(pd.read_parquet(tmp_path / "squares.parquet")) == 3


def test_a_figure_without_repeats_is_whole_under_any_limit():
    whole = papers.find("cholqr-fig4")
    assert whole.limited(1).units(True) == whole.units(True)
    assert len(papers.find("admm-table1").limited(3).units(True)) == 3 * 3 * 3  # kernels, sizes, draws


@pytest.mark.parametrize("name", papers.names())
def test_with_one_repeat_nothing_but_repeats_is_missing(name: str):
    every, limited = papers.find(name).units(True), papers.find(name).limited(1).units(True)

    def described(unit: Unit) -> str:
        return str({key: value for key, value in unit.items() if key not in REPEATED})

    assert {described(unit) for unit in limited} == {described(unit) for unit in every}


def test_the_command_takes_a_number_of_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    requests: list[int] = []
    monkeypatch.setattr(Figure, "run", lambda self, out, full: requests.append(len(self.units(full))) or [])
    for extra in ([], ["--repeats", "1"]):
        with pytest.raises(SystemExit):
            main(["cholqr-fig1", "--full", "--out", str(tmp_path), *extra])
    assert requests == [30, 3]


def test_the_command_takes_values_of_parameters_and_measures_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    requests: list[set[str]] = []

    def measured(unit: Unit) -> float:
        requests.append(set(map(str, unit.values())))
        return 7.0

    figure = replace(papers.find("stochastic-table4"), estimate=measured)
    monkeypatch.setitem(papers._figures, figure.name, figure)
    asked = ["stochastic-table4", "--full", "--measure", "--out", str(tmp_path), "--only", "kin40k", "--only", "128"]
    for _ in range(2):  # the second time nothing is left to measure
        with pytest.raises(SystemExit):
            main(asked)
    assert len(requests) == 2 * 4  # methods, and the first of five rates of each; the five splits take as long
    assert all({"kin40k", "128"} <= values for values in requests)
    twin = replace(papers.find("stochastic-table2"), estimate=measured)  # shows the same rows
    assert twin.seconds(tmp_path / "full", twin.only(["kin40k", "128"]).units(True)) == 4 * 5 * (1 + 5) * 7.0
    with pytest.raises(SystemExit):
        main(["stochastic-table4", "--only", "nowhere", "--out", str(tmp_path)])


def test_names_are_listed_and_an_unknown_one_is_a_sentence(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main([])
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == papers.names()
    with pytest.raises(SettingError, match="nothing to reproduce under 'fig99'; choose one of"):
        papers.find("fig99")


def test_every_figure_says_what_the_paper_printed():
    for result in map(papers.find, papers.names()):
        assert result.title
        assert result.paper.endswith(".")
        assert 0 < len(result.units(False)) <= len(result.units(True))
