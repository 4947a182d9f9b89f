"""Verdicts on known numbers, and one report of several figures that survives a figure that fails."""

from __future__ import annotations

from dataclasses import replace

import holoviews as hv
import pandas as pd
import pytest

import papers
from gpexplorer.errors import DataError, SettingError
from papers import stochastic_schedules, verdict_report
from papers.__main__ import CELLS, reproduce
from papers.base import Figure
from papers.stochastic import BY_LIKELIHOOD, GRID
from papers.verdicts import judge
from papers.verdicts.rules import Verdict, lower, number, statement


@pytest.mark.parametrize(
    ("values", "sd", "verdict"),
    [
        ([1.04], 0.0, "same"),
        ([1.06], 0.0, "worse"),
        ([0.9], 0.0, "better"),
        ([1.2, 1.3], 0.3, "same"),  # within the published sd
        ([0.7, 1.5], 0.0, "same"),  # within two standard errors of ours
        ([float("nan")], 0.0, "no basis"),
    ],
)
def test_a_number_is_compared_within_the_spread_of_both(values, sd, verdict):
    assert number("RMSE", 1.0, values, sd=sd).verdict == verdict


def test_what_was_computed_under_other_conditions_is_not_judged():
    assert number("RMSE", 1.0, [5.0], comparable=False, why="fewer rows").verdict == "no basis"
    assert [statement("order", "yes", "no", holds).verdict for holds in (True, False, None)] == [
        "holds", "fails", "no basis",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "others", "verdict"),
    [
        ([0.0709, 0.0712, 0.0701], [0.0706, 0.0714, 0.0698], "same"),
        ([0.10, 0.20, 0.30], [0.12, 0.22, 0.33], "holds"),  # lower at every repeat, although repeats differ by more
        ([0.12, 0.22, 0.33], [0.10, 0.20, 0.30], "fails"),
        ([0.101, 0.2021, 0.3029], [0.1, 0.2, 0.3], "fails"),  # by 1 %, at every repeat: nothing is allowed for
        ([0.1], [0.2], "no basis"),
        ([float("nan")], [0.2], "no basis"),
    ],
)
def test_one_number_is_lower_than_another_only_beyond_the_spread_of_their_differences(ours, others, verdict):
    found = lower("error", "0.12, 0.13", ours, others)
    assert found.verdict == verdict
    assert ("it takes two repeats" in found.why) == (verdict == "no basis")


def test_a_verdict_without_a_basis_says_what_it_would_take():
    without = [
        number("RMSE", 1.0, [5.0], comparable=False),
        number("RMSE", 1.0, []),
        statement("order", "yes", "", None),
    ]
    assert all(verdict.verdict == "no basis" and "it takes" in verdict.why for verdict in without)
    [gap] = judge(
        "gbcd-fig4", pd.DataFrame([{"converged": True, "rows": 9, "solver": "GBCD", "seconds": 1.0}]), full=True
    )
    assert (gap.verdict, "two numbers of rows" in gap.why) == ("no basis", True)


@pytest.mark.parametrize("full", [False, True])
def test_a_solver_that_does_not_arrive_fails_at_its_number_of_rows(full: bool):
    def lines(arrives: tuple[str, ...]) -> pd.DataFrame:
        return pd.DataFrame(
            {"set": "Kin40k", "solver": s, "rows": 1500, "seconds": 2.5, "gradient": 1e-5 if s in arrives else 0.1}
            for s in ("GBCD", "BCDC", "BCDG", "SMO", "CG")
        )

    [verdict] = judge("gbcd-fig2", lines(("CG",)), full=full)
    assert verdict.verdict == "fails"
    assert (
        verdict.ours == "GBCD fails at 1,500 rows, BCDC fails at 1,500 rows, BCDG fails at 1,500 rows, "
        "SMO fails at 1,500 rows, CG 2.5 s"
    )
    assert "GBCD does not reach it at 1,500 rows" in verdict.why
    [nobody] = judge("gbcd-fig2", lines(()), full=full)
    assert (nobody.verdict, "it takes more seconds" in nobody.why) == ("no basis", True)
    [arrived] = judge("gbcd-fig2", lines(("GBCD",)), full=full)
    assert arrived.verdict == ("holds" if full else "no basis")


def test_the_verdict_on_co2_shows_how_little_the_objective_says_of_the_test_error():
    """The run with the lowest objective is judged, whatever the others score; the paper's own theta is none of them."""
    runs = {"gpcv-admm": (1.307, [(0.3, 0.2), (0.1, 40.0), (0.11, 0.5)]), "ml": (1.408, [(-9.0, 1.4), (-8.0, 0.1)])}
    rows = [
        {"method": name, "lowered": objective, "MSE over test variance": error, "paper": paper}
        for name, (paper, pairs) in runs.items() for objective, error in pairs
    ]  # fmt: skip
    nan = float("nan")
    rows.append({"method": "printed", "lowered": nan, "MSE over test variance": 0.02, "paper": nan})
    admm, ml, order = judge("admm-co2", pd.DataFrame(rows), full=False)
    assert (admm.verdict, admm.ours, ml.verdict, ml.ours) == ("worse", "40", "same", "1.4")
    assert "lowest of 3 objectives" in admm.why
    assert "0.1 (40), 0.11 (0.5), 0.3 (0.2)" in admm.why
    assert "2 of the runs are below" in admm.why
    assert (order.verdict, "0.02 without learning" in order.why) == ("fails", True)


def test_every_figure_has_a_judge():
    for name in papers.names():
        with pytest.raises((KeyError, ValueError, AttributeError)) as raised:
            judge(name, pd.DataFrame(), full=False)
        assert raised.value.args != (name,)  # the frame is empty; the judge itself is there


def test_the_table_of_grief_is_judged_by_the_published_spread():
    rows = [
        {"set": "stock", "type": "II", "fold": fold, "rmse": value, "paper": 0.005, "paper sd": 0.0005}
        for fold, value in enumerate((0.005, 0.0055) * 5)
    ] + [{"set": "servo", "type": "I", "fold": 0, "rmse": 0.9, "paper": 0.268, "paper sd": 0.075}]
    assert [(v.about, v.verdict, v.why) for v in judge("grief-table1", pd.DataFrame(rows), full=False)] == [
        ("stock, type II: RMSE", "same", ""),
        ("servo, type I: RMSE", "worse", "1 of 10 folds"),
    ]


def cells(values: dict[str, float], splits: int = 1, batch: int = 32) -> pd.DataFrame:
    """Rows of tables 2 and 4 of the minibatch paper."""
    return pd.DataFrame(
        {"data": "kin40k", "batch": batch, "split": split, "method": method, "nlml": value, "nlml_paper": printed}
        for method, value in values.items()
        for split in range(splits)
        for printed in [{"scgd": -1.76, "minimax": -1.71, "svgp": 0.79, "bsgd": -0.68}[method]]
    )


def test_some_methods_of_one_split_are_judged_as_far_as_they_go():
    order, scgd = judge("stochastic-table2", cells({"scgd": -1.75, "bsgd": -1.0}), full=True)
    assert (order.verdict, order.why) == ("no basis", "it takes minimax, svgp")
    assert order.takes({"data": "kin40k", "batch": 32, "split": 4, "method": "svgp"})
    assert not any(order.takes({"data": "kin40k", "batch": b, "method": m}) for b, m in ((32, "bsgd"), (64, "svgp")))
    assert (scgd.verdict, scgd.why) == ("same", "1 of 5 splits")
    order, scgd = judge("stochastic-table2", cells({"scgd": -0.5, "bsgd": -1.0}, splits=5), full=True)
    assert (order.verdict, order.why, scgd.verdict, scgd.why) == ("fails", "", "worse", "")


def test_an_order_is_judged_on_the_splits_that_all_methods_have():
    some = cells({"scgd": -1.2, "minimax": -1.3, "svgp": -1.0, "bsgd": -1.1}, splits=4)
    more = cells({"scgd": 9.0}, splits=5).query("split == 4")
    order, scgd, _ = judge("stochastic-table2", pd.concat([some, more]), full=True)
    assert (order.verdict, order.why) == ("holds", "4 of 5 splits")
    assert "scgd -1.2" in order.ours
    assert "of 5" not in scgd.why


def test_numbers_are_those_of_the_rule_of_the_paper_where_all_its_rates_were_tried():
    values = {"scgd": -1.3, "minimax": -1.4, "svgp": -1.0, "bsgd": -1.1}
    aside = cells(values, splits=5)
    tried = [
        cells({method: value - 0.1 * k}, splits=5).assign(rate=rate, rule=BY_LIKELIHOOD)
        for method, value in (values | {"scgd": -1.35}).items()
        for k, rate in enumerate(GRID)
    ]
    order, scgd, minimax = judge("stochastic-table2", pd.concat([aside, *tried], ignore_index=True), full=True)
    assert (scgd.ours.split()[0], scgd.verdict) == ("-1.75", "same")
    assert scgd.why == "rates of the least NLML, as in the paper; of rows set aside: -1.3"
    assert (order.verdict, order.why) == ("holds", "rates of the least NLML, as in the paper")
    assert "svgp -1.4" in order.ours
    order, *_ = judge("stochastic-table2", pd.concat([aside, *tried[:-1]], ignore_index=True), full=True)
    assert (order.verdict, order.why) == ("holds", "")  # one rate of BSGD is missing
    assert "svgp -1" in order.ours
    assert (minimax.ours.split()[0], minimax.verdict) == ("-1.8", "better")


def test_the_order_of_methods_is_a_statement_only_where_the_paper_has_it():
    frame = cells({"scgd": -1.75, "minimax": -1.6, "svgp": -0.5, "bsgd": -1.0}, splits=5)

    order, *numbers = judge("stochastic-table2", frame, full=True)

    assert order.verdict == "holds"
    assert len(numbers) == 2
    others = frame[frame["method"].isin(["svgp", "bsgd"])]
    for data, batch, is_claimed in (("kin40k", 16, True), ("elevators", 32, False)):  # MINIMAX: -1.559, -1.042
        place = others.assign(data=data, batch=batch)
        assert len(judge("stochastic-table3", place, full=True)) == is_claimed


def test_falling_rates_are_judged_by_the_least_likelihood_once_all_were_tried():
    tried = pd.concat(
        cells({"scgd": value}).assign(optimiser="adam", rate=rate, rmse=0.06, rows=100)
        for rate, value in zip(stochastic_schedules.RATES["adam"], (-1.5, -1.8, -1.6), strict=True)
    )
    [scgd] = judge("stochastic-schedules", tried.reset_index(drop=True), full=True)
    assert (scgd.ours, scgd.published, scgd.verdict) == ("-1.8", "-1.76 ± 0.09", "same")
    assert scgd.why == "1 of 5 splits; RMSE 0.06, published 0.056"

    [scgd] = judge("stochastic-schedules", tried.iloc[1:].reset_index(drop=True), full=True)
    assert (scgd.verdict, scgd.why) == ("no basis", "it takes all 3 rates")
    assert scgd.takes({"data": "kin40k", "batch": 32, "method": "scgd", "optimiser": "adam", "rate": 1e-3})
    [quick] = judge("stochastic-schedules", tried.reset_index(drop=True), full=False)
    assert quick.verdict == "no basis"


def test_statements_of_the_quick_version_are_settled_by_pieces_in_full_or_by_the_time_that_they_take(tmp_path):
    quick, full = tmp_path / "quick", tmp_path / "full"
    seconds = {"scgd": 2.0, "minimax": 30.0, "svgp": 400.0, "bsgd": 5000.0}
    figure = replace(
        papers.find("stochastic-table2"),
        work=lambda unit: cells({unit["method"]: -1.75}).assign(rule=unit.get("rate") and "tried").to_dict("records"),
        plot=lambda frame: hv.Scatter(frame, "batch", "nlml"),
        estimate=lambda unit: seconds[unit["method"]],
        pace="by a part",
    )
    quick_rows = pd.concat([cells(dict.fromkeys(seconds, 1.0), batch=b) for b in (32, 128)])
    without = judge("stochastic-table2", quick_rows, full=False)
    assert [v.verdict for v in verdict_report.settled(figure, without, quick, False)] == [v.verdict for v in without]

    list(figure.only(["kin40k", "32", "scgd"]).limited(1).run(full, True))
    list(figure.only(["kin40k", "128", "minimax"]).measure(full, True))
    _, scgd, minimax, _, _, other = verdict_report.settled(figure, without, quick, False)

    assert (scgd.verdict, scgd.ours, scgd.why) == ("same", "-1.75", "in the sizes of the paper; 1 of 5 splits")
    assert minimax.verdict == "no basis"  # its time was not measured
    assert other.verdict == "not computed"
    assert other.why == "because its 5 pieces take 150 s of a processor, by a part"
    seconds["minimax"] = float("inf")
    list(figure.only(["kin40k", "32"]).measure(full, True))
    last = verdict_report.settled(figure, without, quick, False)[2]
    assert last.why == "because its 5 pieces take more than 0 s of a processor, by a part"
    judged = [verdict_report.Judged(figure, quick_rows, [scgd, minimax, other])]
    assert verdict_report.markdown(judged).startswith(
        "3 statements of 1 figures and tables: 1 same; 1 not computed, with the time that it takes; 1 without a basis"
    )


def test_a_verdict_in_the_sizes_of_the_paper_replaces_that_of_the_quick_version(tmp_path):
    """Two tables of one page said "fails" and "holds" of one statement."""
    ahead, behind = ({"scgd": a, "minimax": a, "svgp": -1.5, "bsgd": -1.0} for a in (-1.75, 1.0))
    figure = replace(
        papers.find("stochastic-table2"),
        work=lambda unit: (
            cells({unit["method"]: ahead[unit["method"]]}).assign(rule=unit.get("rate") and "tried").to_dict("records")
        ),
        plot=lambda frame: hv.Scatter(frame, "batch", "nlml"),
    )
    quick = judge("stochastic-table2", cells(behind), full=False)
    list(figure.only(["kin40k", "32"]).limited(1).run(tmp_path / "full", True))
    order, *_ = verdict_report.settled(figure, quick, tmp_path / "quick", False)
    assert (quick[0].verdict, order.verdict, order.why) == (
        "fails", "holds", "in the sizes of the paper; 1 of 5 splits",
    )  # fmt: skip


def test_one_cell_of_kin40k_decides_its_number_and_no_order():
    rows = [{"method": "CholQR-VAR", "m": 128, "seed": 0, "SMSE": 0.2}]
    below, falls, at_128, _ = judge("cholqr-fig5", pd.DataFrame(rows), full=True)
    assert (below.verdict, falls.verdict, at_128.verdict) == ("no basis", "no basis", "same")
    assert (below.why, falls.why) == ("it takes the errors of IVM-VAR", "it takes two numbers of points")
    rows += [{"method": name, "m": m, "seed": 0, "SMSE": 0.1} for name, m in (("CholQR-VAR", 256), ("IVM-VAR", 256))]
    of_two = [(v.verdict, v.why) for v in judge("cholqr-fig5", pd.DataFrame(rows), full=True)[:2]]
    assert of_two == [("holds", "1 of 5 sizes"), ("holds", "2 of 5 sizes")]


def test_solvers_that_disagree_and_a_slower_gbcd_are_reported():
    rows = [
        {"set": "Kin40k", "solver": solver, "seconds": seconds, "RMSE": rmse, "paper": 0.098, "converged": True}
        for solver, seconds, rmse in (("GBCD", 9.0, 0.1), ("CG", 3.0, 0.1), ("Cholesky", 1.0, 0.2))
    ]
    same, error, fastest = judge("gbcd-table2", pd.DataFrame(rows), full=True)
    assert (same.verdict, fastest.verdict) == ("fails", "fails")
    assert error.published == "0.098"


@pytest.mark.parametrize(
    ("seconds", "stopped", "verdict"),
    [
        ((83.0, 160.0), 120.0, "holds"),  # every other solver takes more than GBCD, to its end or until it was stopped
        ((83.0, 160.0), 80.0, "no basis"),
        ((170.0, 160.0), 80.0, "fails"),
        ((None, 160.0), 170.0, "fails"),  # GBCD was stopped after 170 s
        ((None, 180.0), 170.0, "no basis"),
    ],
)
def test_a_solver_that_was_stopped_takes_more_than_its_seconds(seconds, stopped, verdict):
    times = dict(zip(("GBCD", "SMO", "BCDC", "BCDG", "CG"), (*seconds, None, None, None), strict=True))
    rows = [
        {"set": "Calhouse", "solver": name, "seconds": time or stopped, "RMSE": 0.46, "paper": 0.477}
        | {"converged": time is not None}
        for name, time in times.items()
    ]
    fastest = judge("gbcd-table2", pd.DataFrame(rows), full=True)[2]
    assert fastest.verdict == verdict
    assert f"BCDC more than {stopped:.0f} s" in fastest.ours


def test_a_table_of_which_some_cells_are_missing_is_judged_as_far_as_it_goes():
    def cells(names: tuple[str, ...]) -> pd.DataFrame:
        return pd.DataFrame(
            {"set": "Kin40k", "solver": s, "seconds": k + 1.0, "RMSE": 0.1, "paper": 0.1, "converged": True}
            for k, s in enumerate(names)
        )

    names = (("GBCD", "CG"), ("CG", "GBCD"), ("CG",))
    fastest = [judge("gbcd-table2", cells(solvers), full=True)[2] for solvers in names]
    assert [verdict.verdict for verdict in fastest] == ["no basis", "fails", "no basis"]
    assert fastest[0].why == "it takes the times of BCDC, BCDG, SMO"
    assert fastest[2].why == "it takes the times of GBCD, BCDC, BCDG, SMO"
    same = [judge("gbcd-table2", cells(solvers), full=True)[0].verdict for solvers in names]
    assert same == ["holds", "holds", "no basis"]  # one solver agrees with itself
    order, error = judge("gbcd-table4", cells(("SD",)), full=True)
    assert (order.verdict, order.why, error.verdict) == ("no basis", "it takes the errors of SR, MPGP, GBCD", "same")


def figure(name, works):
    def work(unit):
        if not works:
            raise DataError("The set <poses> is not here.")
        return [{"n": unit["n"]}]

    return Figure(
        name, f"Figure {name}", "The paper printed <1>.", lambda full: [{"n": 1}], work,
        lambda frame: hv.Scatter(frame, "n", "n"),
    )  # fmt: skip


def test_a_report_has_all_figures_and_names_the_one_that_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(verdict_report, "judge", lambda name, rows, full: [Verdict("a | b", "<1>", "1", "same")])
    lines = list(verdict_report.run_all([figure("good", True), figure("bad", False)], tmp_path, full=False))
    text, page = (tmp_path / "report.md").read_text(), (tmp_path / "report.html").read_text()
    assert "1 statements of 2 figures and tables: 1 same. Not computed: bad." in text
    assert "| a \\| b | <1> | 1 | same |  |" in text
    assert "The set <poses> is not here." in text
    assert "poses" in page
    assert "<poses>" not in page
    assert lines[-1].startswith("Written: ")


def test_pieces_that_are_there_are_judged_without_computing_the_others(tmp_path, monkeypatch):
    two = replace(figure("two", True), units=lambda full: [{"n": 1}, {"n": 2}])
    list(replace(two, units=lambda full: [{"n": 1}]).run(tmp_path / "full", True))
    monkeypatch.setattr(papers, "_figures", {"two": replace(two, work=None)})
    monkeypatch.setattr(verdict_report, "judge", lambda name, rows, full: [Verdict(name, "1", str(len(rows)), "same")])
    reproduce("two", full=True, judge=True, out=tmp_path)
    text = (tmp_path / "full" / "report.md").read_text()
    assert "1 pieces of work are not computed." in text
    assert "| two | 1 | 1 | same |  |" in text


def test_several_names_are_computed_and_judged_in_one_report(tmp_path, monkeypatch):
    figures = {name: figure(name, True) for name in ("one", "two", "three")}
    monkeypatch.setattr(papers, "_figures", figures)
    monkeypatch.setattr(verdict_report, "judge", lambda name, rows, full: [Verdict(name, "1", "1", "same")])
    reproduce("one, three", out=tmp_path)
    lines = (tmp_path / "quick" / "report.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("###")] == ["### one: Figure one", "### three: Figure three"]
    with pytest.raises(SettingError, match="four"):
        reproduce("one,four", out=tmp_path)


@pytest.mark.parametrize("full", [True, False])
def test_the_reports_say_what_the_kept_cells_give(full):
    folder = CELLS / ("full" if full else "quick")
    figures = [
        figure
        for figure in map(papers.find, papers.names())
        if len(figure.missing(folder, full)) < len(figure.units(full))
    ]
    judged = [verdict_report.from_cells(figure, folder, full) for figure in figures]
    text = (folder / "report.md").read_text("utf-8")
    assert text == f"# {verdict_report.TITLE}\n\n{verdict_report.markdown(judged)}"
