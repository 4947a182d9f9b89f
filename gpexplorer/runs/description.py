"""The fields of a spec, for the modules that `spec` imports.

`Spec.open` makes a run, so `spec` imports `opening` and `run`. They name a spec by this class, which holds the fields,
and not by `Spec`, which checks them: otherwise the three modules would import one another in a circle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Description:
    """The fields of a `Spec`, which describes them. `spec.Spec` is the one class that has them."""

    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    data: str | dict[str, Any] = "snelson-like"
    split: int | dict[str, Any] = 0
    kernel: str | dict[str, Any] = "se-ard"
    seed: int = 0
    device: str = "cpu"
    dtype: str = "float64"
    budget: dict[str, Any] = field(default_factory=dict)
    target_transform: str = ""
    input_transform: str = ""

    def key(self) -> str:
        """Return the name of the run."""
        raise NotImplementedError
