"""The commands `methods`, `kernels`, `costs`, `schema` and `data`: lists of what can be run and on which data sets.

The catalogue behind them is plain values: methods with their settings, kernels and data sets. Collecting them imports
torch, which takes seconds. They are therefore kept in the user's cache folder under a name that changes with every file
of this package, and a list or a completion of the shell takes a fraction of a second.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import platformdirs
import typer

from ..errors import SettingError, closest
from .output import AsJson, print_json, print_table

PACKAGE = Path(__file__).resolve().parent.parent
DIGITS = 16  # hexadecimal digits in the file name of a cached catalogue

Catalogue = dict[str, list[dict[str, Any]]]


def catalogue() -> Catalogue:
    """Return "methods", "kernels" and "data", each a list of plain dicts in alphabetical order.

    Notes
    -----
    Methods that a program has registered itself are listed as well: if the methods are imported already, nothing is
    read from the cache.
    """
    if "gpexplorer.methods.base" in sys.modules:
        return collected()
    path = _path()
    with suppress(OSError, ValueError):
        cached = json.loads(path.read_text("utf-8"))
        if set(cached) == {"methods", "kernels", "data"}:
            return cached
    entries = collected()
    with suppress(OSError):  # a folder that cannot be written only costs time
        path.parent.mkdir(parents=True, exist_ok=True)
        for older in path.parent.glob("catalogue-*.json"):
            older.unlink()
        temporary = path.with_suffix(f".{os.getpid()}.new")
        temporary.write_text(json.dumps(entries), "utf-8")
        temporary.replace(path)
    return entries


def collected() -> Catalogue:
    """The catalogue of the classes and cards as they are now."""
    return {"methods": _methods(), "kernels": _kernels(), "data": _data()}


def keys(kind: str) -> list[str]:
    """The keys of the methods or kernels, or the names of the data sets."""
    return [entry["name" if kind == "data" else "key"] for entry in catalogue()[kind]]


def is_here(entry: dict[str, Any]) -> bool:
    """Whether all files of a data set exist with the right size; a generator needs none."""
    return all(Path(path).is_file() and Path(path).stat().st_size == size for path, size in entry["files"])


def _methods() -> list[dict[str, Any]]:
    from ..methods.base import registry
    from ..runs.setting_checks import wanted

    return [
        {
            "key": key,
            "title": method.title,
            "family": method.family,
            "paper": method.paper,
            "settings": [
                {"name": name, "default": setting.default, "takes": wanted(setting), "meaning": setting.doc or ""}
                for name, setting in method.used_settings().items()
            ],
        }
        for key, method in sorted(registry.items())
    ]


def _kernels() -> list[dict[str, Any]]:
    from ..kernels.base import registry

    return [
        {
            "key": key,
            "title": kernel.title,
            "inputs": kernel.inputs,
            "hyperparameters": list(registry[key](2 if kernel.inputs == "real" else 1).names),
        }
        for key, kernel in sorted(registry.items())
    ]


def _data() -> list[dict[str, Any]]:
    from ..data import available
    from ..data.sets.cards import cache_dir, card, names

    public, rows = set(names()), list[dict[str, Any]]()
    records = available().drop(columns="cached").reset_index().to_dict("records")
    for row in ({str(name): value for name, value in record.items()} for record in records):
        files = card(row["name"]).files if row["name"] in public else ()
        paths = [[str(cache_dir() / file.path), file.nbytes] for file in files]
        d = None if row["d"] is None or row["d"] != row["d"] else int(row["d"])  # molecules have no columns
        rows.append({**row, "n": int(row["n"]), "d": d, "files": paths})
    return sorted(rows, key=lambda row: row["name"])


def _path() -> Path:
    """The file of the catalogue of this version of the package, for the data folder in use."""
    state = hashlib.sha256(os.environ.get("GPEXPLORER_DATA_DIR", "").encode())
    for file in sorted(PACKAGE.rglob("*")):
        if file.suffix in (".py", ".yaml"):
            info = file.stat()
            state.update(f"{file.relative_to(PACKAGE)} {info.st_mtime_ns} {info.st_size}\n".encode())
    return Path(platformdirs.user_cache_dir("gpexplorer")) / f"catalogue-{state.hexdigest()[:DIGITS]}.json"


WIDTH = 110  # characters per line of the lists

data_app = typer.Typer(help="List the data sets, or fetch one of them.", invoke_without_command=True)


def complete_method(typed: str) -> list[str]:
    """The keys of methods that begin with what was typed, for the shell."""
    return [key for key in keys("methods") if key.startswith(typed)]


def complete_data(typed: str) -> list[str]:
    """The names of data sets that begin with what was typed, for the shell."""
    return [name for name in keys("data") if name.startswith(typed)]


def methods(
    key: Annotated[
        str, typer.Argument(help="The key of one method. Without it, all are listed.", autocompletion=complete_method)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the methods: title, family, paper, and every setting with its bounds."""
    entries = catalogue()["methods"]
    method_keys = [entry["key"] for entry in entries]
    if key and key not in method_keys:
        raise SettingError(f"Method {key!r} is not known{closest(key, method_keys)}")
    chosen = [entry for entry in entries if key in ("", entry["key"])]
    if as_json:
        return print_json(chosen)
    for entry in chosen:
        typer.echo(f"{entry['key']}: {entry['title']} ({entry['family']})")
        typer.echo(textwrap.indent(textwrap.fill(entry["paper"], WIDTH - 2), "  "))
        for setting in entry["settings"]:
            typer.echo(f"  {setting['name']} = {setting['default']!r}: {setting['takes']}.")
            typer.echo(textwrap.indent(textwrap.fill(setting["meaning"], WIDTH - 6), "      "))
        typer.echo()
    return None


def kernels(as_json: AsJson = False) -> None:
    """List the kernels: key, title, what the inputs must be, and the hyperparameters for two inputs."""
    entries = catalogue()["kernels"]
    if as_json:
        return print_json(entries)
    rows = [(entry["key"], entry["title"], entry["inputs"], ", ".join(entry["hyperparameters"])) for entry in entries]
    print_table(("key", "title", "inputs", "hyperparameters of two inputs"), rows)
    typer.echo("Kernels are joined by + and *, with parentheses: se-ard * (periodic + linear).")
    return None


def costs(
    rows: Annotated[int, typer.Option(help="Number of training rows.", min=2)] = 1_000_000,
    inputs: Annotated[int, typer.Option(help="Number of inputs.", min=1)] = 8,
    as_json: AsJson = False,
) -> None:
    """List what a step of every method costs at its defaults, by formula: memory, operations, largest array.

    Nothing is computed, so that any number of rows can be asked for. The rows themselves, which may lie on the disk,
    do not count.
    """
    from ..data.quoting import size
    from ..runs.studies.memory_need import default_costs

    entries = default_costs(rows, inputs)
    if as_json:
        return print_json(entries)
    table = [
        (entry["key"], size(entry["memory"]), f"{entry['flops']:.1e}", entry["largest array"]) for entry in entries
    ]
    print_table(("method", "memory", "operations per step", "largest array"), table)
    return None


def schema() -> None:
    """Print the JSON Schema of a Spec, by which an editor completes and checks SPEC.json."""
    from ..runs.schema import spec_schema

    print_json(spec_schema())


@data_app.callback()
def data(context: typer.Context, as_json: AsJson = False) -> None:
    """List every data set by name, with its size, its licence and whether it is on this machine."""
    if context.invoked_subcommand is None:
        list_data(as_json)


@data_app.command("list")
def list_data(as_json: AsJson = False) -> None:
    """List every data set by name, with its size, its licence and whether it is on this machine."""
    entries = catalogue()["data"]
    if as_json:
        return print_json(
            [{**{k: v for k, v in entry.items() if k != "files"}, "cached": is_here(entry)} for entry in entries]
        )
    rows = [
        (
            entry["name"],
            str(entry["n"]),
            "molecules" if entry["d"] is None else str(entry["d"]),
            entry["task"],
            textwrap.shorten(entry["licence"], 40, placeholder=" ..."),
            entry["source"],
            "here" if is_here(entry) else "to fetch",
        )
        for entry in entries
    ]
    print_table(("name", "n", "d", "task", "licence", "source", "cached"), rows)
    return None


@data_app.command()
def fetch(name: Annotated[str, typer.Argument(help="A name from the list.", autocompletion=complete_data)]) -> None:
    """Download a public data set into the cache, and check it."""
    from ..data import fetch as download

    terminal = sys.stderr.isatty()
    paths = download(name, progress=_report_download if terminal else None)
    typer.echo("\n" if terminal and paths else "", err=True, nl=False)
    typer.echo("".join(f"{path}\n" for path in paths), nl=False)
    if not paths:
        typer.echo(f"{name} is generated: there is nothing to fetch.")


def _report_download(done: int, total: int) -> None:
    typer.echo(f"\r{done / 1e6:.1f} of {total / 1e6:.1f} MB", err=True, nl=False)
