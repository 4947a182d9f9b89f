"""Mutants that nothing can tell from the original, by file: the changed line and the change, and why."""

from __future__ import annotations

EQUIVALENT: dict[str, dict[tuple[str, str], str]] = {
    "recommendation/averaging.py": {
        ("targets = scores[0].targets", "0 becomes 1"): "all models are scored on the same rows",
    },
    "views/families/feature_space.py": {
        ("plane = torch.zeros(len(y), 2).to(Phi)", "2 becomes 3"): "a third column is not read",
        (
            "plane = plane * torch.where(plane.T @ (y - y.mean()) < 0.0, -1.0, 1.0)",
            "* becomes /",
        ): "the factor is 1 or -1",
        (
            "plane = plane * torch.where(plane.T @ (y - y.mean()) < 0.0, -1.0, 1.0)",
            "- becomes +",
        ): "the sum of each column is zero",
        ("plane[:, : min(2, len(S))] = (U * S)[:, :2]", "2 becomes 3"): "the plane has two columns",
    },
    "views/families/filter_view.py": {
        (
            "order = train.X[:, 0].argsort(stable=True).cpu()",
            "True becomes False",
        ): "rows at the same place are seen together, in either order",
        (
            "room = 0.04 * (high - low) + 1e-9",
            "+ becomes -",
        ): "a billionth, which keeps the places of a single row apart; they are sorted",
        ("room = 0.04 * (high - low) + 1e-9", "1e-09 becomes 2e-09"): "a billionth, which keeps places apart",
        (
            "grid = torch.cat([grid, t[shown], t[shown] - 1e-6 * room]).sort().values",
            "1e-06 becomes 2e-06",
        ): "a place right before a row, closer than a line is thick",
    },
    "views/families/landscape_view.py": {
        (
            "Chem.Kekulize(molecule, clearAromaticFlags=True)",
            "True becomes False",
        ): "bonds are single or double in either case, and flags are not drawn",
    },
    "views/runs/calibration.py": {
        (
            'return int(((observed["y"] < lower - 1e-9) | (observed["y"] > upper + 1e-9)).sum())',
            "1e-09 becomes 2e-09",
        ): "the least distance is one row of two thousand",
        (
            "cumulative = bdtr(np.arange(rows + 1.0)[:, None], rows, levels)"
            "  # [t + 1, levels] of at most k rows inside",
            "1.0 becomes 2.0",
        ): "the probability of at most all rows, twice",
    },
    "views/runs/comparison_charts.py": {
        (
            "self.table = scored[is_shown | is_answer].reset_index(drop=True)",
            "True becomes False",
        ): "the old numbers of the rows, not drawn",
        (
            'parts, sizes = [], [int(size) for size in layers[GROWTH_POWERS[0]]["x"]]',
            "0 becomes 1",
        ): "all powers are drawn at the same sizes",
    },
    "views/screens/lesson_page.py": {
        (
            "curve.xaxis.ticker = FixedTicker(ticks=list(range(0, SWAPS + 1, 3)))",
            "1 becomes 2",
        ): "every third of twelve swaps has a tick, and the thirteenth would have none",
        ('"points": len(states[0].inducing),', "0 becomes 1"): "a swap does not change the number of points",
    },
    "views/screens/side_by_side_page.py": {
        ("seed=1,", "1 becomes 2"): "another seed",
        (
            'return {"map": packed(mean(self.grid)), "smse": rounded(error), "seconds": round(seconds, 5), **marks}',
            "5 becomes 6",
        ): "the chart begins at a millisecond",
        ("self.table[key].append([n, round(median(steps[1:] or steps), 6)])", "6 becomes 7"): "three digits are drawn",
        ("sizes = [n for k in range(20) if (n := FIRST * 2**k) <= largest]", "20 becomes 21"): "262 million rows",
        ("last = part.trace[-1]", "- is left out"): "the run has one step",
        (
            "return [plane.frame_of(run, run.trace[-1].step.state, _median_seconds(run))]",
            "- is left out",
        ): "the run has one step",
        ("first, *more = [run.trace[-1].seconds]", "- is left out"): "the run has one step",
        ("more.append(again.trace[-1].seconds)", "- is left out"): "the run has one step",
        (
            "rows = method.learner(model, run.trace[-1].step.state).rows",
            "- is left out",
        ): "which rows a minibatch has does not depend on the state",
        (
            "rows = method.learner(model, run.trace[-1].step.state).rows",
            "1 becomes 2",
        ): "which rows a minibatch has does not depend on the state",
    },
    "views/saved_page/page_file.py": {
        (
            "docs, items = standalone_docs_json_and_render_items(document, suppress_callback_warning=True)",
            "True becomes False",
        ): "a message of Bokeh in the log",
        (
            "return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()",
            "0 becomes 1",
        ): "any time will do that is the same each time",
    },
    "views/saved_page/recorded_figures.py": {
        (
            "return gzip.compress(bytes(self.blob), 9, mtime=0)",
            "0 becomes 1",
        ): "any time will do that is the same each time",
    },
}
