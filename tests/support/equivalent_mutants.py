"""Mutants that nothing can tell from the original, by file: the changed line and the change, and why."""

from __future__ import annotations

EQUIVALENT: dict[str, dict[tuple[str, str], str]] = {
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
}
