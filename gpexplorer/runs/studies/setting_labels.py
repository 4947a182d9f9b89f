"""Settings as the page and the pictures call them: a label in plain words in place of the name in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ...data.sets.cards import YAML
from ...methods.base import registry
from ..spec import in_words

MAX_LABEL = 24  # characters
LABELS: dict[str, str] = yaml.load(Path(__file__).with_suffix(".yaml").read_text("utf-8"), YAML)


def label_of(name: str, doc: str = "") -> str:
    """Return the label of a setting: the text before the colon of its doc if that is short, else that of the table."""
    heading = doc.partition(":")[0]
    is_short = ":" in doc and len(heading) <= MAX_LABEL
    return heading if is_short else LABELS.get(name) or name.removeprefix("num_").replace("_", " ").capitalize()


def setting_in_words(method: str, name: str, value: Any, labels: bool = True) -> str:
    """Write the value of a setting, or of a field of a spec.

    Parameters
    ----------
    method : str
        The key of the method whose setting it is.
    name : str
        The name in Python.
    value : object
        What JSON can hold.
    labels : bool, default True
        Whether the label stands before the value, as on the page, or the name.

    Examples
    --------
    >>> setting_in_words("cholqr", "num_inducing", 20)
    'Inducing points m = 20'
    >>> setting_in_words("cholqr", "seed", 3)
    'seed = 3'
    >>> setting_in_words("cholqr", "budget", {"steps": 50})
    'at most 50 steps'
    >>> setting_in_words("cholqr", "num_inducing", 20, labels=False)
    'num_inducing=20'
    """
    if not labels:
        return f"{name}={in_words(value)}"
    if name == "budget":
        return f"at most {budget_in_words(value)}" if value else budget_in_words(value)
    if name == "method":
        return f"method = {registry[value].title}"
    settings = registry[method].param.objects()
    is_field = name == "seed" or name not in settings
    label = name.replace("_", " ") if is_field else label_of(name, settings[name].doc or "")
    return f"{label} = {in_words(value)}"


def budget_in_words(budget: dict[str, float]) -> str:
    """Write the limits of a run, such as "50 steps, 10 seconds"."""
    return ", ".join(f"{in_words(amount)} {unit}" for unit, amount in budget.items()) or "no limit"
