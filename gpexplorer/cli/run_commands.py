"""The commands `run`, `sweep`, `export` and `predict`: specs become runs; stored runs and models, pages and tables."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import shlex
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import GPExplorerError, StoreError
from .output import (
    AsJson,
    Quiet,
    Stopping,
    format_duration,
    on_one_line,
    print_json,
    print_table,
    stopping,
    to_nowhere,
    to_stderr,
)

if TYPE_CHECKING:
    import pandas as pd

    from ..runs import Run, Spec
    from ..runs.storage.journal import Kept

PICTURES = "the pictures of a page; the steps alone can be written without them"


def export(
    kept: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a stored run, such as runs-store/1f3…")],
    page: Annotated[Path | None, typer.Option(help="Write an HTML page that plays the run without a network.")] = None,
    beside: Annotated[
        Path | None, typer.Option(help="The directory of a second run, which the page shows beside the first.")
    ] = None,
    by: Annotated[str, typer.Option(help='What two runs have in common: "step" or "seconds".')] = "step",
    pictures: Annotated[str, typer.Option(help="Which pictures of the run, such as fit,landscape.")] = "",
    steps: Annotated[
        Path | None, typer.Option(help="Write the steps to this .csv, .csv.gz, .tsv or .parquet file.")
    ] = None,
) -> None:
    """Write a stored run as one HTML file that plays its pictures, or its steps as a table.

    Nothing is computed again but the pictures, and the store is only read. Pictures need the rows of the run, from the
    file that its spec names; steps need them only for the log densities of priors.
    """
    from ..errors import SettingError
    from .files import PAGES, TABLES, require_writable

    if page is None and steps is None:
        raise SettingError("Nothing to write: give --page run.html, --steps steps.csv, or both.")
    require_writable(page, "--page", PAGES)
    require_writable(steps, "--steps", TABLES)
    run = None if page is None else _opened(kept, PICTURES)
    if steps is not None:
        table = _steps(kept)
        _write([table], steps, "--steps")
        typer.echo(f"{len(table)} records in {steps}")
    if page is not None and run is not None:
        from ..views.saved_page.page_file import save_page

        runs = {run.method.title: run}
        if beside is not None:
            other = _opened(beside, PICTURES)
            runs = {f"{kept.name[:6]}: {run.method.title}": run, f"{beside.name[:6]}: {other.method.title}": other}
        save_page(runs, page, [key.strip() for key in pictures.split(",") if key.strip()], by=by)
        typer.echo(f"{page.stat().st_size / 1e6:.1f} MB in {page}")


def _opened(kept: Path, purpose: str) -> Run:
    """The stored run with its records, for reading only; an error of its rows says what they are needed for."""
    from ..errors import DataError, StoreError
    from ..runs.opening import reopened

    spec, records = _stored(kept)
    try:
        return reopened(spec, records)
    except (DataError, StoreError) as error:
        raise type(error)(f"Export needs the rows of the run for {purpose}. {error}") from None


def _steps(kept: Path) -> pd.DataFrame:
    """The steps of a stored run as a table, without its rows where they are not needed."""
    from ..runs import Trace
    from ..runs.setting_checks import method_of
    from ..views.runs.steps_table import with_what_was_done

    spec, stored = _stored(kept)
    if isinstance(spec.kernel, dict) and spec.kernel.get("priors"):
        table = _opened(kept, "the log densities of priors").table()
    else:
        table = Trace(stored.records).table(method_of(spec).channels)
    return with_what_was_done(table, stored.records)


def _stored(kept: Path) -> tuple[Spec, Kept]:
    """The spec and the records of a stored run."""
    from ..data.quoting import count
    from ..errors import SettingError
    from ..runs import Store

    path = kept.expanduser().resolve()
    if path.is_dir() and (runs := Store(path).names()):
        raise SettingError(f"{kept} is a store of {count(len(runs), 'run')}: name one, such as {kept / runs[0]}.")
    store = Store(path.parent)
    return store.spec(path.name), store.kept(path.name)


FAILED, DIVERGED = 1, 3  # exit codes; 0 if a run converged or used its budget, 2 for a mistake
TERMINAL_SECONDS, LOG_SECONDS = 0.2, 10.0  # between two progress lines, on a terminal and in a log


def run(  # noqa: PLR0913 - the options of the command
    spec: Annotated[str, typer.Argument(help="A file of Spec JSON, or - for standard input.")],
    out: Annotated[Path, typer.Option(help="The store: a directory of runs.")] = Path("runs-store"),
    change: Annotated[
        list[str] | None, typer.Option("--set", help="key=value: seed=3, num_inducing=64, budget.seconds=10 ...")
    ] = None,
    target_transform: Annotated[
        str | None,
        typer.Option(
            help='What the model learns in place of the target: "log" for targets above 0, "yeo-johnson" for skewed '
            'ones, or "yeo-johnson 0.5" with a power from 0 to 2; "" is the target itself. Predictions and scores are '
            "those of the target. The same as --set target_transform=..."
        ),
    ] = None,
    scheduler: Annotated[
        str, typer.Option(help="The address of a Dask scheduler, which receives pieces of each step, such as folds.")
    ] = "",
    model: Annotated[
        Path | None, typer.Option(help="Write what predictions need to this safetensors file, for `predict`.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a Spec to its end or its budget and keep every step. The same command continues where it was stopped.

    The exit code is 0 if the run converged or used its budget, 1 if it failed, 3 if it diverged, and 2 for a mistake in
    the command. Where the store has more steps than the budget, the result and the model are those of the step at which
    the budget was reached.

    After an interrupt (SIGINT) the exit code is 130 and after SIGTERM 143: the step in progress ends within about a
    second, or is given up and taken again later, and every step before it is kept. A second signal ends the command at
    once.
    """
    from ..runs import Store, working
    from .files import NO_MODEL, read_spec, require_writable, writable

    with stopping() as signals:
        changes = [*(change or []), *([] if target_transform is None else [f"target_transform={target_transform}"])]
        checked = read_spec(spec, changes)
        require_writable(model, "--model", others=NO_MODEL, sources=[spec])
        kept = Store(out).open(checked)
        command = ["python", "-m", "gpexplorer", "run", spec, "--out", str(out)]
        command += [word for text in changes for word in ("--set", text)]
        command += ["--scheduler", scheduler] if scheduler else []
        command += ["--model", str(model)] if model is not None else []
        with closing(kept), working(kept, scheduler, to_stderr):
            opened = kept.within_budget()
            if opened is not kept and not quiet:
                to_stderr(
                    f"The store has {kept.done:,} steps. The budget ends the run at step {opened.done:,}, shown here."
                )
            _finish(opened, shlex.join(command), quiet or opened is not kept, signals)
        (_print_json if as_json else _print_result)(opened, out / checked.key())
        codes = {"failed": FAILED, "diverged": DIVERGED}
        code = codes.get(opened.outcome.reason, 0) if opened.outcome else 0
        if model is not None:
            try:
                with writable(model, "--model"):
                    opened.posterior(of="y").save(model)
            except GPExplorerError as error:  # a run that failed has its own exit code, which says more than this one
                if not code:
                    raise
                typer.echo(f"Error: the model was not written. {error}", err=True)
        signals.exit()
        if code:
            raise typer.Exit(code)


def sweep(
    source: Annotated[str, typer.Argument(metavar="GRID", help='{"spec": {...}, "over": {"num_inducing": [8, 32]}}')],
    scheduler: Annotated[
        str, typer.Option(help="The address of a Dask scheduler. Without one, the runs follow one another here.")
    ] = "",
    out: Annotated[Path, typer.Option(help="The table of all runs, a .parquet file.")] = Path("sweep.parquet"),
    store: Annotated[
        Path, typer.Option(help="Where every step is kept. A run that is kept there is not run again.")
    ] = Path("runs-store"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a Spec at every combination of some values, here or on a cluster, and print a table, the best run first.

    The same command continues where it was stopped. After SIGINT or SIGTERM the table of the runs that have ended is
    written, and the exit code is 130 or 143.
    """
    from ..runs import Store
    from ..runs.studies.sweep import sweep as run_all
    from .files import PARQUET, read_sweep, require_writable, write_sweep_table

    require_writable(out, endings=PARQUET, sources=[source])
    with stopping() as signals:
        specs = read_sweep(source)
        Store(store).require_writable()
        if scheduler:
            signals.stop_by(_interrupt)
        runs = run_all(specs, scheduler, store=store.resolve(), opened=lambda run: signals.stop_by(run.stop))
        ended = itertools.takewhile(lambda _: not signals, runs)  # the run that a signal stops is not in the table
        table = write_sweep_table(ended, len(specs), out, to_nowhere if quiet else to_stderr)
    if signals:
        typer.echo(
            f"Stopped after {len(table)} of {len(specs):,} runs; every step is kept. The same command goes on.",
            err=True,
        )
        signals.exit()
    if as_json:
        print_json(json.loads(table.reset_index().to_json(orient="records")))  # nan is null
    else:
        shown = table.drop(columns="differs", errors="ignore").reset_index()  # the names of the runs say it already
        print_table(list(shown.columns), [[_cell(value) for value in row] for row in shown.to_numpy().tolist()])
    if len(table) < len(specs) or "failed" in set(table["outcome"]):
        raise typer.Exit(FAILED)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _cell(value: object) -> str:
    """A value in a table for people."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def progress_line(run: Run) -> str:
    """How far a run is: steps, seconds, the last value of the first channel, the share of the budget, time to go."""
    if not len(run.trace):
        return "starting"
    parts = [f"step {run.done}", f"{run.trace[-1].seconds:.1f} s"]
    if run.method.channels:
        first = run.method.channels[0]
        recent = [float(getattr(record.step.info, first.name, math.nan)) for record in run.trace[-50:]]
        finite = [value for value in recent if math.isfinite(value)]
        parts += [f"{first.label} {finite[-1]:.6g}"] if finite else []
    scoring = run.scoring.progress
    if run.outcome or scoring:
        parts.append("taking the last scores" if run.outcome else "taking scores")
        if scoring and math.isfinite(scoring.eta):
            parts.append(f"about {format_duration(scoring.eta)} to go")
        return ", ".join(parts)
    fraction, seconds_to_go = run.progress()
    parts += [f"{fraction:.0%} of the budget"] if math.isfinite(fraction) else []
    parts += [f"about {format_duration(seconds_to_go)} to go"] if math.isfinite(seconds_to_go) else []
    return ", ".join(parts)


@contextmanager
def reporting_progress(run: Run, report: Callable[[str], object], every: float) -> Iterator[None]:
    """Report the progress line at regular intervals inside a `with` block, from a thread that ends with the block."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every):
            report(progress_line(run))

    thread = threading.Thread(target=repeat, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _finish(opened: Run, command: str, quiet: bool, signals: Stopping) -> None:
    """Step to the end with progress on stderr. After a signal, print the command that continues the run."""
    from ..runs.studies.machine_speed import long_step_of

    if opened.done and not quiet:
        typer.echo(f"Going on from step {opened.done}.", err=True)
    elif note := "" if quiet else long_step_of(opened).note:
        typer.echo(note, err=True)
    terminal = sys.stderr.isatty() and not quiet
    report = to_nowhere if quiet else on_one_line if terminal else to_stderr
    signals.stop_by(opened.stop)
    with reporting_progress(opened, report, TERMINAL_SECONDS if terminal else LOG_SECONDS):
        opened.finish()
    if signals and opened.outcome and opened.outcome.reason == "stopped":
        typer.echo(f"\nInterrupted at step {opened.done}; every step is kept. Go on with:\n  {command}", err=True)
        signals.exit()
    typer.echo("\r\033[K" if terminal else "", err=True, nl=False)


def _print_json(opened: Run, directory: Path) -> None:
    """The result as one JSON object: outcome, what was spent, scores, and where the steps are kept."""
    outcome, last = opened.outcome, opened.trace[-1] if len(opened.trace) else None
    assert outcome is not None
    result = {
        "outcome": outcome.reason,
        "message": outcome.message,
        "steps": opened.done,
        "seconds": last.seconds if last else 0.0,
        "kernel_entries": last.cost.entries if last else 0,
        "scores": {name: float(value) for name, value in (last.scores or {}).items()} if last else {},
        "variance": opened.variance_note,
        "kept_in": "" if isinstance(opened.error, StoreError) else str(directory),
    }
    print_json(result)


def _print_result(opened: Run, directory: Path) -> None:
    from ..runs.counting import jitter_sentence
    from ..runs.scores import OF_VARIANCE

    outcome = opened.outcome
    assert outcome is not None
    sentence = f"{outcome.reason}: {outcome.message} {jitter_sentence(opened.jitters)}"
    typer.echo(sentence.rstrip(), err=outcome.reason == "failed")
    if len(opened.trace):
        last = opened.trace[-1]
        typer.echo(f"{opened.done:,} steps, {last.seconds:.3g} s, {last.cost.entries:,} kernel entries")
        note = f"  (variance: {opened.variance_note})" if opened.variance_note else ""
        for name, value in (last.scores or {}).items():
            typer.echo(f"{name:12} {value:.6g}{note if name in OF_VARIANCE else ''}")
    if not isinstance(opened.error, StoreError):  # whose sentence says how much of the run is kept
        typer.echo(f"kept in {directory}")


def predict(
    model: Annotated[Path, typer.Argument(help="A file that `run --model` or posterior.save wrote.")],
    rows: Annotated[Path, typer.Argument(help="A CSV, Parquet or NPZ file with the input columns of the model.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Write the table to this .csv, .csv.gz, .tsv or .parquet file instead of printing it."),
    ] = None,
    of: Annotated[str, typer.Option(help='"y" for new observations, or "f" for the function without noise.')] = "y",
    quantiles: Annotated[str, typer.Option(help="Probabilities of further columns, such as 0.1,0.5,0.9.")] = "",
) -> None:
    """Predict the rows of a file with a saved model, of any number of rows.

    The table has the number of each row, the name of the target, the mean, the standard deviations of the prediction
    and of f, the ends of the 95 % interval, a flag for rows that are far from all training rows, and a column `why`
    that says which cells were filled, are words that training does not have, or cannot be read. The counts of these are
    printed at the end.
    """
    from ..errors import SettingError
    from ..runs.storage.saved_posterior import load_posterior
    from ..runs.studies.prediction_table import predictions_of_file, sentence_of_counts
    from .files import TABLES, require_writable

    require_writable(out, endings=TABLES, sources=[model, rows])
    try:
        levels = [float(level) for level in quantiles.split(",") if level.strip()]
    except ValueError:
        raise SettingError(f"quantiles is {quantiles!r}: give numbers such as 0.1,0.5,0.9.") from None
    counts: Counter[str] = Counter()
    tables = _counted(predictions_of_file(load_posterior(model), rows, of, levels), counts)
    if out is None:
        _write_csv(tables, sys.stdout)
    else:
        _write(tables, out, "--out")
    typer.echo(sentence_of_counts(counts), err=True)


def _counted(tables: Iterator[pd.DataFrame], counts: Counter[str]) -> Iterator[pd.DataFrame]:
    """The tables as they come, with their rows counted by what is said of them; the notes of the first are printed."""
    from ..runs.studies.prediction_table import count_reasons

    for number, table in enumerate(tables):
        for note in table.attrs.get("notes", ()) if number == 0 else ():
            to_stderr(note)
        counts.update(count_reasons(table))
        yield table


def _write(tables: Iterable[pd.DataFrame], out: Path, option: str) -> None:
    """Write one table after the other to a Parquet or CSV file, which appears when all are written."""
    from ..runs.storage.own_files import replacing
    from .files import PARQUET, writable

    with writable(out, option), replacing(out, private=False) as fresh:
        if out.suffix.lower() in PARQUET:
            import pyarrow as pa
            import pyarrow.parquet as pq

            with ExitStack() as stack:
                writer = None
                for table in tables:
                    arrow_table = pa.Table.from_pandas(table, preserve_index=False)
                    writer = writer or stack.enter_context(pq.ParquetWriter(fresh, arrow_table.schema))
                    writer.write_table(arrow_table)
        else:
            opened = gzip.open if out.suffix.lower() == ".gz" else open
            with opened(fresh, "wt", encoding="utf-8", newline="") as file:
                _write_csv(tables, file, "\t" if ".tsv" in [end.lower() for end in out.suffixes[-2:]] else ",")


def _write_csv(tables: Iterable[pd.DataFrame], file: object, delimiter: str = ",") -> None:
    for number, table in enumerate(tables):
        table.to_csv(file, sep=delimiter, index=False, header=number == 0)  # type: ignore[call-overload]
