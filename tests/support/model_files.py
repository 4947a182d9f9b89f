"""Files of saved posteriors, taken apart and written again with other content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor


def parts_of(path: Path) -> tuple[dict[str, Tensor], Any]:
    with safe_open(path, "pt") as file:
        return load_file(path), json.loads(file.metadata()["posterior"])


def rewritten(path: Path, tensors: dict[str, Tensor], description: Any, **header: str) -> Path:
    text = description if isinstance(description, str) else json.dumps(description)
    save_file(tensors, path, {"format": "gpexplorer posterior", "version": "1", "posterior": text, **header})
    return path


def changed(description: Any, *names: str, value: Any) -> Any:
    """The description with the entry at this place replaced."""
    copy = json.loads(json.dumps(description))
    place = copy
    for name in names[:-1]:
        place = place[name]
    place[names[-1]] = value
    return copy
