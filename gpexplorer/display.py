"""What runs, specs and studies show as the last line of a notebook cell.

Pictures and widgets belong to higher layers. This module reaches them through the public names of `gpexplorer`, so that
a script that draws nothing imports no drawing library.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import Any

STYLE = "text-align:left;padding:1px 12px 1px 0;vertical-align:top"


def html_table(rows: Mapping[str, Any]) -> str:
    """Return a table of two columns. Names and values are escaped.

    Parameters
    ----------
    rows : mapping
        Name -> value.
    """
    cells = (
        f'<tr><th style="{STYLE}">{escape(str(name))}</th><td style="{STYLE}">{escape(str(value))}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table>{''.join(cells)}</table>"


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells in aligned columns; the first row has the headings."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def html_rows(rows: Sequence[Sequence[str]]) -> str:
    """Return the same as markup; the first column names the rows. Cells are escaped."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    lines = [f"<th>{escape(row[0])}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}" for row in rows[1:]]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _public_names() -> Any:
    """The package with its public names. Its type is Any, because this layer may not import higher ones."""
    return importlib.import_module("gpexplorer")


class InPanel:
    """What Panel shows of an object: `pn.panel(shown)`, a row or a column with it, and what `pn.bind` returns."""

    def __panel__(self) -> Any:
        return importlib.import_module("gpexplorer.ui").pane_of(self)


class RunDisplay(InPanel):
    """The pictures of a run, its player, and the table that a cell shows."""

    def plot(self, key: str = "fit", at: Any = -1, **options: Any) -> Any:
        """Draw one picture of the run.

        Parameters
        ----------
        key : str, default "fit"
            Which picture: "fit", "convergence" and "terms", or another one in `gpexplorer.views.for_run(run)`.
        at : int, default -1
            Index of the record, or a widget, a parameter or an expression that gives it.
        **options : object
            Options of the picture, such as `paths=25`.

        Returns
        -------
        gpexplorer.Picture
            A cell shows it as SVG, also in a saved notebook; `pn.panel` makes a pane of it, and `element` has it for
            HoloViews.

        Raises
        ------
        SettingError
            If there is no such picture or option for this run.
        """
        return _public_names().Picture(self, key, at, **options)

    def widget(self, *keys: str) -> Any:
        """Make a player of this run: a notebook cell shows its buttons and live pictures.

        Parameters
        ----------
        *keys : str
            Which pictures; without any, the fit and the convergence.

        Returns
        -------
        gpexplorer.RunWidget
            Its parameters `at`, `last`, `playing` and `record` can be watched, and `at` and `playing` can be set.
        """
        return _public_names().RunWidget(self, keys)

    def save_page(self, path: str | os.PathLike[str], *keys: str, title: str = "") -> Path:
        """Write the run as one HTML file, which plays its pictures without a server and without a network.

        Parameters
        ----------
        path : str or path
            The file to write, smaller than 5 MB.
        *keys : str
            Which pictures; without any, the prediction, the picture of the method's family, and the convergence.
        title : str
            Heading of the page; by default it names the method and the data.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        SettingError
            If the run has no record, there is no such picture, or the file cannot be written.
        """
        written: Path = _public_names().views.saved_page.page_file.save_page(self, path, keys, title=title)
        return written

    def table_html(self) -> str:
        """Return what a cell says of the run above its picture: method, rows, steps, seconds, scores and outcome."""
        run: Any = self
        rows = {"method": run.method.title, "training rows": f"{len(run.problem.train):,}", "steps": run.done}
        if len(run.trace):
            rows["seconds of work"] = f"{run.trace[-1].seconds:.3g}"
            scores = run.trace[-1].scores or {}
            rows |= {name: f"{scores[name]:.4g}" for name in ("smse", "snlp") if name in scores}
        if run.outcome is not None:
            rows["outcome"] = run.outcome.message
        return html_table(rows)

    def _repr_html_(self) -> str:
        """A small table, and the picture of the fit."""
        run: Any = self
        try:
            picture = _public_names().Picture(run, "fit").html() if len(run.trace) else ""
        except Exception:  # the table is shown in any case
            picture = ""
        return self.table_html() + picture


class SpecDisplay(InPanel):
    """The table that a cell shows of a spec."""

    def _repr_html_(self) -> str:
        """Every field that is not empty, and the name of the run."""
        spec: Any = self
        values = {field.name: getattr(spec, field.name) for field in fields(spec)}
        rows = {name: value for name, value in values.items() if value not in ({}, None, "")}
        return html_table({**rows, "key": spec.key()})


class RaceDisplay(InPanel):
    """The board and the curves that a cell shows of a race."""

    def curves(self, metric: str = "smse") -> Any:
        """Draw one curve per lane over its seconds of work.

        Parameters
        ----------
        metric : {"smse", "snlp"}
            The score.

        Returns
        -------
        gpexplorer.views.picture.Curves
            An overlay of HoloViews, which a cell shows as SVG and a saved notebook keeps.

        Raises
        ------
        SettingError
            If there is no such score.
        """
        return _public_names().views.picture.race_curves(self, metric)

    def parts(self) -> list[Any]:
        """Return what a cell shows: HTML and elements of HoloViews, from top to bottom."""
        shown: list[Any] = _public_names().views.picture.race_parts(self)
        return shown

    def _repr_html_(self) -> str:
        """The newest scores of each lane, and their curves."""
        return str(_public_names().views.picture.html_of(self.parts()))


class ScalingDisplay(InPanel):
    """The table and the chart that a cell shows of a scaling study."""

    def parts(self) -> list[Any]:
        """Return what a cell shows: HTML and elements of HoloViews, from top to bottom."""
        shown: list[Any] = _public_names().views.picture.scaling_parts(self)
        return shown

    def _repr_html_(self) -> str:
        """One row per size, and the fitted power law."""
        return str(_public_names().views.picture.html_of(self.parts()))
