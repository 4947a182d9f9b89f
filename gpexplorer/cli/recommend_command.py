"""The command `recommend`: which method to use for a file or a data set, and what to expect of it."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import AsJson, Quiet, format_duration, on_one_line, print_json, stopping, to_stderr

if TYPE_CHECKING:
    from ..recommendation import Progress, Recommendation

DIGITS = 4  # of the numbers in the table


def recommend(  # noqa: PLR0913 - the options of the command
    source: Annotated[str, typer.Argument(metavar="FILE", help="A CSV, Parquet or NPZ file, or a data set by name.")],
    seconds: Annotated[float, typer.Option(help="Wall-clock time for all of it.", min=0.5)] = 60.0,
    memory: Annotated[str, typer.Option(help='Largest model, such as "2 GB"; half of free memory without it.')] = "",
    target: Annotated[str, typer.Option(help="The column to predict; the last one without it.")] = "",
    inputs: Annotated[list[str] | None, typer.Option(help="A column to learn from; may be repeated.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")] = None,
    encode: Annotated[list[str] | None, typer.Option(help="A column of words to use; may be repeated.")] = None,
    dates: Annotated[list[str] | None, typer.Option(help="A column of dates to use; may be repeated.")] = None,
    decimal: Annotated[str, typer.Option(help='"," if 3,5 in the file is 3.5.')] = ".",
    groups: Annotated[str, typer.Option(help="A column, such as patient: rows with one value stay together.")] = "",
    folds: Annotated[
        str, typer.Option(help='Hold out "time" (later rows), "groups" (whole) or "random" rows; else the rows decide.')
    ] = "",
    before: Annotated[str, typer.Option(help="Hold out the rows from this date or number on.")] = "",
    prefer: Annotated[
        str, typer.Option(help='"nlpd": the best bands; "rmse": the smallest error; "gp": no trees in the answer.')
    ] = "nlpd",
    missing: Annotated[str, typer.Option(help='Rows with gaps: "fill" (as without it), "drop", or "refuse".')] = "",
    kinds: Annotated[
        list[str] | None, typer.Option("--kind", help='How a column is read, such as when="date mdy" or code=words.')
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the held-out rows and of every method.", min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the Spec of the answer to this .json file.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Write the fitted model to this safetensors file, for `predict`.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Try the methods on held-out rows for a minute, and say which one to use, with what to expect of it."""
    from ..errors import DataError, SettingError
    from ..recommendation import recommend as find
    from .files import NO_MODEL, SPECS, require_writable

    require_writable(out, endings=SPECS, sources=[source])
    require_writable(model, "--model", others=NO_MODEL, sources=[source])
    options: dict[str, Any] = {
        "target": target, "inputs": inputs, "drop": drop, "encode": encode, "dates": dates, "groups": groups,
        "missing": missing, "decimal": decimal if decimal != "." else "", "kinds": _kinds(kinds or []),
        "memory": memory, "folds": _way(folds), "before": before, "prefer": prefer, "seconds": seconds, "seed": seed,
    }  # fmt: skip
    stopped = threading.Event()
    with stopping() as signals:
        signals.stop_by(stopped.set)
        try:
            answer = find(
                source,
                on_progress=None if quiet else _report,
                should_stop=stopped.is_set,
                **{name: value for name, value in options.items() if value not in ("", None, [], {})},
            )
        except (DataError, SettingError) as error:
            raise type(error)(_as_options(str(error))) from None
        finally:
            typer.echo("\r\033[K" if sys.stderr.isatty() else "", err=True, nl=False)
        _write(answer, out, model)
        print_json(_plain(answer)) if as_json else typer.echo(_text(answer))
    if signals:
        typer.echo("Interrupted: this is the best answer so far.", err=True)
        signals.exit()


def _kinds(given: list[str]) -> dict[str, str]:
    """The values of --kind as the option `kinds` of `load`."""
    from ..errors import SettingError

    wrong = [text for text in given if "=" not in text]
    if wrong:
        raise SettingError(f'--kind {wrong[0]!r} names no kind: write column=kind, such as when="date mdy".')
    return {text.rpartition("=")[0]: text.rpartition("=")[2] for text in given}


def _way(folds: str) -> str:
    """The value of --folds; other folds than these words are objects of Python."""
    from ..data.quoting import quote
    from ..errors import SettingError
    from ..recommendation.promises import WAYS

    if folds not in ("", *WAYS):
        raise SettingError(f"--folds is {quote(folds)}; give {', '.join(WAYS[:-1])} or {WAYS[-1]}.")
    return folds


def _write(answer: Any, out: Path | None, model: Path | None) -> None:
    """Write the Spec and the model of an answer to the files that were asked for."""
    from ..runs.storage.own_files import replacing
    from .files import writable

    if out is not None:
        with writable(out), replacing(out, private=False) as fresh:
            fresh.write_text(answer.spec.to_json() + "\n", "utf-8")
    if model is not None:
        with writable(model, "--model"):
            answer.posterior.save(model)


def _as_options(message: str) -> str:
    """The way out of a message on a file, as options of this command: missing="drop" becomes --missing drop."""
    value = r'"[^"]+"(?:, "[^"]+")*|\.\.\.'
    names = "missing|decimal|target|inputs|drop|encode|dates|folds|before|groups"
    message = re.sub(rf"\b({names})=\[?({value})\]?", _as_option, message)
    message = re.sub(
        r'kinds=\{"([^"]+)": "([^"]+)"\}', lambda kind: f"--kind {shlex.quote('='.join(kind.groups()))}", message
    )
    message = re.sub(r"\b(before|dates|groups|target)=(?=[ ,.])", r"--\1", message)
    message = message.replace(", or give the group of each row.", ".")  # which only Python can
    return re.sub(r"^(before|groups|memory|prefer) (?=is|holds)", r"--\1 ", message)


def _as_option(match: re.Match[str]) -> str:
    name, values = match[1], re.findall(r'"([^"]+)"', match[2]) or ["NAME"]
    return " ".join(f"--{name} {'NAME' if value == '...' else shlex.quote(value)}" for value in values)


def _report(progress: Progress) -> None:
    line = f"{progress.fraction:.0%}, {format_duration(progress.seconds_left)} to go: {progress.sentence}"
    (on_one_line if sys.stderr.isatty() else to_stderr)(line)


def _text(answer: Recommendation) -> str:
    table = answer.table.drop(columns=["nlpd_low", "nlpd_high"]).astype({"rows": "Int64", "held_out": "Int64"})
    numbers = table.to_string(index=False, na_rep="", float_format=lambda value: f"{value:.{DIGITS}g}")
    return f"{_as_options(str(answer))}\n\n{numbers}"


def _plain(answer: Recommendation) -> dict[str, Any]:
    """The answer in JSON's own types."""
    rows = [
        {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
        for row in answer.table.to_dict("records")
    ]
    return {
        "method": answer.method,
        "kernel": answer.kernel,
        "target_transform": answer.spec.target_transform,
        "input_transform": answer.spec.input_transform,
        "spec": json.loads(answer.spec.to_json()),
        "expected": {name: interval._asdict() for name, interval in answer.expected.items()},
        "held_out_by": answer.held_out_by,
        "expected_between_rows": answer.between and {name: own._asdict() for name, own in answer.between.items()},
        "runner_up": answer.runner_up,
        "average": answer.average
        and {
            "weights": answer.average.weights,
            "expected": {name: interval._asdict() for name, interval in answer.average.expected.items()},
        },
        "better_simple_model": answer.better_simple_model,
        "sentences": list(answer.sentences),
        "table": rows,
    }
