"""Commands of the command line, called in this process, and the Spec of a toy run for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpexplorer.__main__ import main
from toy_method import ROWS


def call(*arguments: str) -> int:
    """The exit code of one command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def write(name: str = "spec.json", **fields: Any) -> str:
    """Write a Spec of the toy method with these fields; returns the name of the file."""
    Path(name).write_text(json.dumps({"gpexplorer": 1, "method": "toy", "data": ROWS, **fields}))
    return name
