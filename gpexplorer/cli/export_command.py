"""The command `export`: a stored run, or two of them, as an HTML page that plays, or as a table of steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..runs import Run


def export(
    kept: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a stored run, such as runs-store/1f3…")],
    page: Annotated[Path | None, typer.Option(help="Write an HTML page that plays the run without a network.")] = None,
    beside: Annotated[
        Path | None, typer.Option(help="The directory of a second run, which the page shows beside the first.")
    ] = None,
    by: Annotated[str, typer.Option(help='What two runs have in common: "step" or "seconds".')] = "step",
    pictures: Annotated[str, typer.Option(help="Which pictures of the run, such as fit,landscape.")] = "",
    steps: Annotated[Path | None, typer.Option(help="Write the table of steps to this CSV or Parquet file.")] = None,
) -> None:
    """Write a stored run as one HTML file that plays its pictures, or its steps as a table.

    Nothing is computed again but the pictures, and the store is only read.
    """
    from ..errors import SettingError
    from ..runs.storage.own_files import replacing
    from .files import require_writable, writable

    if page is None and steps is None:
        raise SettingError("Nothing to write: give --page run.html, --steps steps.csv, or both.")
    require_writable(page, "--page")
    require_writable(steps, "--steps")
    run = _opened(kept)
    if steps is not None:
        with writable(steps, "--steps"), replacing(steps, private=False) as fresh:
            if steps.suffix.lower() in (".parquet", ".pq"):
                run.table().to_parquet(fresh, index=False)
            else:
                run.table().to_csv(fresh, index=False)
        typer.echo(f"{len(run.trace)} records in {steps}")
    if page is not None:
        from ..views.saved_page.page_file import save_page

        runs = {run.method.title: run}
        if beside is not None:
            other = _opened(beside)
            runs = {f"{kept.name[:6]}: {run.method.title}": run, f"{beside.name[:6]}: {other.method.title}": other}
        save_page(runs, page, [key.strip() for key in pictures.split(",") if key.strip()], by=by)
        typer.echo(f"{page.stat().st_size / 1e6:.1f} MB in {page}")


def _opened(kept: Path) -> Run:
    """The stored run with its records, for reading only."""
    from ..runs import Store
    from ..runs.opening import reopened

    path = kept.expanduser().resolve()
    store = Store(path.parent)
    return reopened(store.spec(path.name), store.kept(path.name))
