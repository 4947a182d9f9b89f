"""What `--help` says of every command is true: options that are named exist, and defaults are those that are used."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import gpexplorer
from gpexplorer import recommend
from gpexplorer.cli import app
from gpexplorer.ui import server
from gpexplorer.ui.shared_limits import Limits

ROOT = Path(gpexplorer.__file__).parent
ROOMS = ("cli", "data", "recommendation", "runs")  # where options of other programs are named nowhere but in launchers
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


def commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its words, such as "data fetch"."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}".strip())


COMMANDS = dict(commands(typer.main.get_command(app)))


def options(command: Any) -> set[str]:
    return {word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


EVERY = set().union(*map(options, COMMANDS.values()))


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_a_help_names_exist(name: str) -> None:
    command = COMMANDS[name]
    texts = [command.help or "", *(getattr(parameter, "help", None) or "" for parameter in command.params)]
    assert set(OPTION.findall(" ".join(texts))) <= EVERY
    assert all(texts[1:]), "an option or argument has no help"
    assert command.hidden or texts[0]


def test_options_that_messages_of_the_package_name_exist() -> None:
    texts = {path: path.read_text("utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    named = {(option, path.name) for path, text in texts.items() for option in OPTION.findall(text)}
    assert len(named) > 20
    assert {(option, name) for option, name in named if option not in EVERY and name != "launchers.py"} == set()


def test_options_in_commands_of_the_documentation_exist() -> None:
    pages = [ROOT.parent / "README.md", *(ROOT.parent / "docs").rglob("*.md")]
    lines = [
        line for page in pages for line in re.findall(r"python -m gpexplorer ([^\n`#|]+)", page.read_text("utf-8"))
    ]
    assert len(lines) > 10
    for line in lines:
        words = shlex.split(line)
        name = next((" ".join(words[:k]) for k in (2, 1) if " ".join(words[:k]) in COMMANDS), None)
        if words[0].isalpha():
            assert name, line
            assert {word.partition("=")[0] for word in words if OPTION.match(word)} <= options(COMMANDS[name]), line


@pytest.mark.parametrize(("name", "function"), [("recommend", recommend), ("serve", server.serve), ("serve", Limits)])
def test_defaults_that_a_help_prints_are_those_of_the_function_that_is_called(name: str, function: Callable) -> None:
    used = {key: own.default for key, own in inspect.signature(function).parameters.items()}
    printed = {parameter.name: parameter.default for parameter in COMMANDS[name].params}
    printed["max_per_address"] = printed.get("max_sessions_per_address")
    same = {key for key, default in printed.items() if default not in (None, "", []) and key in used}
    assert len(same) >= 3
    assert {key: printed[key] for key in same} == {key: used[key] for key in same}
