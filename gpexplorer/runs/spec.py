"""A `Spec` says what to compute. The same JSON is the link, the preset, the program, the command line and the store.

Which hyperparameters there are is checked when the run is opened, since it depends on the columns of the data. Here the
form of their values, bounds and priors is checked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

from .. import kernels
from ..data import is_named
from ..data.splits import ALL
from ..data.standardising import checked_input_transform
from ..display import SpecDisplay
from ..errors import SettingError, closest, is_one_of, listed, number, quoted
from ..hyperparameters import Hyperparameters
from ..kernels.theta.options import OPTIONS, checked_options
from ..methods.base import registry
from ..target_transforms import checked_transform
from .budget import named_limits
from .description import Description
from .opening import DTYPES, SEVERAL_STARTS, STARTS, JournalSource, open_run
from .run import Run
from .setting_checks import added_before, object_without_duplicates, of_kind, resolve

VERSION = 1
LARGEST = 100_000  # bytes of JSON: a spec is a page of text, not a data set
LARGEST_INTEGER = 2**53  # every reader of JSON represents integers up to this one exactly
A_SPEC = "a Spec, of a run its run.spec, of text Spec.from_json(text)"
TRANSFORMS = ("target_transform", "input_transform")  # fields that are left out where they are empty
COUNTS_OF_DATA = ("n", "d", "seed", "train", "test")  # options of data by name that are whole numbers
COUNTS_OF_SPLITS = ("folds", "fold", "seed")
DEVICE = re.compile(r"cpu|cuda(:\d{1,2})?")


@dataclass(frozen=True)
class Spec(Description, SpecDisplay):
    """A method, its settings, the data, the kernel and everything else that decides what a run computes.

    Parameters
    ----------
    method : str
        The key of a method, such as "cholqr" (`gpexplorer.methods` lists them).
    settings : dict
        Settings of the method by name. Settings that are missing are filled in with their defaults, so that a default
        that changes later does not change what an old spec means.
    data : str or dict
        A name, a path, or a dict such as ``{"name": "friedman1", "n": 1000}``.
    split : int, dict or "all"
        The number of a split of the data, or a dict such as ``{"test": 0.1, "seed": 2}``. "all" makes every row a
        training row, so that there are no scores.
    kernel : str or dict
        The key of a kernel, or ``{"name": key, "theta": [...]}`` to start from another theta: log-hyperparameters in
        the scaled space, the last being the log noise standard deviation. Without theta, a method that learns it
        begins at the best of several starts (see `gpexplorer.starts`), and with ``{"name": key, "start": "one"}`` at
        the kernel's own, as all did before there were several; ``"start": "learned"`` begins where the best of several
        arrived on a few hundred rows, which saves the first steps of a short run. Hyperparameters by name have "values"
        in the units of the file, where learning begins, and may be "fixed", have "bounds", be "tied" or have "priors":
        ``{"name": "lp", "values": {"lp.period": 1.0}, "fixed": ["lp.period"], "bounds": {"noise": [0.1, None]},
        "tied": [["lp.lengthscale", "lp.width"]], "priors": {"*.sd": "lognormal(0, 1)"}}`` (see `gpx.Hyperparameters`).
    seed : int
        The seed of every random choice that the method makes.
    device : str
        "cpu", "cuda" or "cuda:0".
    dtype : str
        "float64" or "float32".
    budget : dict
        May hold "steps" and "seconds". The budget is not part of the run's name.
    target_transform : str
        What the Gaussian process models in place of the target: "log" for targets above 0, "yeo-johnson" for skewed
        ones, or "yeo-johnson 0.5" with a power from 0 to 2 (see `gpexplorer.target_transforms`); "" is the target
        itself. Predictions and scores are those of the target in any case, and objectives those of the transformed one.
    input_transform : {"", "log"}
        "log" takes inputs with a long tail, such as incomes, as signed logarithms; see `data.standardising`.

    Raises
    ------
    SettingError
        If a field cannot be used. The message names the field, its value and what to give instead.

    Examples
    --------
    >>> spec = Spec("cholqr", {"num_inducing": 16}, data={"name": "friedman1", "n": 200})
    >>> run = spec.open()
    >>> Spec.from_json(spec.to_json()) == spec
    True
    """

    def __post_init__(self) -> None:
        _refuse_unknown(self.method, self.device, self.dtype)
        settings = of_kind("settings", self.settings, Mapping, "names with their values")
        checked = {
            "settings": resolve(registry[self.method], settings),
            "data": _checked_data(self.data),
            "split": _checked_split(self.split),
            "kernel": _checked_kernel(self.kernel),
            "seed": _whole("seed", self.seed),
            "budget": _checked_budget(self.budget),
            "target_transform": checked_transform(self.target_transform),
            "input_transform": checked_input_transform(self.input_transform),
        }
        _refuse_lone_surrogates(checked)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return hash(_hashable(self._entries()))  # not of the JSON, where the equal numbers 1 and 1.0 differ

    def to_json(self) -> str:
        """Canonical JSON: sorted names, no spaces, finite numbers. Equal specs give equal text."""
        return _canonical({"gpexplorer": VERSION, **self._entries()})

    @classmethod
    def from_json(cls, text: str | bytes) -> Spec:
        """Read a spec from its JSON.

        Raises
        ------
        SettingError
            If the text is not a spec, is longer than 100,000 characters, or is of another version.
        """
        values = parsed(text)
        if (version := values.pop("gpexplorer", VERSION)) != VERSION:
            raise SettingError(
                f"The spec is of version {quoted(version)}; this gpexplorer reads version {VERSION}: install the "
                "one that wrote it."
            )
        field_names = [entry.name for entry in fields(cls)]
        for name in values:
            if name not in field_names:
                raise SettingError(f"A spec has no field {quoted(name)}{closest(name, field_names)}")
        if "method" not in values:
            raise SettingError(f"The spec names no method. Choose one of {', '.join(sorted(registry))}.")
        return cls(**values)

    def key(self) -> str:
        """The run's name: a hash of everything that decides what is computed.

        The budget is left out, because it decides only how many steps are taken.
        """
        computed = {name: value for name, value in self._entries().items() if name != "budget"}
        earlier = added_before(registry[self.method], self.settings)  # the name that an old spec has
        computed["settings"] = {
            name: value for name, value in self.settings.items() if name not in earlier or value != earlier[name]
        }
        text = _canonical({"gpexplorer": VERSION, **computed})
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @torch.inference_mode(False)
    def open(self, store: JournalSource | None = None, data: Any = None) -> Run:
        """Make the run of this spec.

        Parameters
        ----------
        store : Store, optional
            Keeps every record. The run continues after the last record that the store has of it.
        data : Split, arrays or frame, optional
            Rows in memory, in place of the rows that the spec names. The spec of the run then names them by a hash of
            their content, so that the run's name still says what was computed.

        Returns
        -------
        Run
            Ready for its next step.
        """
        return open_run(replace(self), store, data)  # checks again what was put into its dicts

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The hyperparameters with which a run of this spec begins; its rows are read, and the starts compared."""
        with closing(self.open()) as run:
            return run.hyperparameters

    def _entries(self) -> dict[str, Any]:
        """The fields, without a transform that is none, so that specs from before there were any keep their names."""
        return {name: value for name, value in asdict(self).items() if name not in TRANSFORMS or value}


def named_specs(owner: str, specs: Any) -> dict[str, Spec]:
    """Check a dict of specs by name, such as the lanes of a race; SettingError if it is empty or holds other things."""
    if not isinstance(specs, Mapping) or not specs:
        raise SettingError(f'{owner} takes {{"its name": Spec(...)}}, one at least, and not {quoted(specs)}.')
    return {name: of_kind(f"{owner}: {quoted(name)}", spec, Spec, A_SPEC) for name, spec in specs.items()}


def parsed(text: str | bytes) -> dict[str, Any]:
    """The JSON object in this text, with its fields not yet checked; SettingError if it is none or is too long."""
    if not isinstance(text, (str, bytes, bytearray)):
        raise SettingError(f"The spec is {quoted(text)}; give its JSON as text.")
    if len(text) > LARGEST:
        raise SettingError(f"The spec is longer than {LARGEST} characters, the most that are read.")
    try:
        values = json.loads(text, object_pairs_hook=object_without_duplicates)
    except SettingError:
        raise
    except (ValueError, RecursionError) as error:
        place = ""
        if isinstance(error, json.JSONDecodeError) and error.doc.strip():
            place = f" Line {error.lineno}, column {error.colno}: {error.msg}."
        raise SettingError(f"The spec is not JSON: it must be one object in braces.{place}") from None
    if not isinstance(values, dict):
        raise SettingError(f"The spec is {quoted(values)}; it must be one object in braces.")
    return values


def _refuse_unknown(method: object, device: object, dtype: object) -> None:
    if not isinstance(method, str) or method not in registry:
        raise SettingError(f"Method {quoted(method)} is not known{closest(str(method), registry)}")
    if not isinstance(device, str) or not DEVICE.fullmatch(device):
        raise SettingError(f'device is {quoted(device)}; give "cpu", "cuda" or "cuda:0".')
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise SettingError(f"dtype is {quoted(dtype)}; give one of {', '.join(DTYPES)}.")


def _whole(name: str, value: Any) -> int:
    return int(number(name, value, whole=True, low=0, high=LARGEST_INTEGER))


def _checked_data(data: Any) -> str | dict[str, Any]:
    if isinstance(data, (str, PurePath)) and str(data):
        return str(data)
    if isinstance(data, Mapping) and data:
        entries: dict[str, Any] = _plain("data", dict(data))
        return _with_whole_numbers(entries, COUNTS_OF_DATA) if is_named(entries) else entries
    raise SettingError(f"data is {quoted(data)}; give a name, a path or a dict; arrays go to open(data=...).")


def _checked_split(split: Any) -> int | dict[str, Any] | str:
    if isinstance(split, Mapping):
        return _with_whole_numbers(_plain("split", dict(split)), COUNTS_OF_SPLITS)
    if isinstance(split, str) and split == ALL:
        return split
    try:
        return _whole("split", split)
    except SettingError as error:
        raise SettingError(
            f'{error} A share of the rows is {{"test": 0.1, "seed": 2}}; "all" holds out none.'
        ) from None


def _with_whole_numbers(entries: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Entries of which those with these names are integers where they are whole floats, such as the n of 300.0 rows."""
    return {
        name: int(value) if name in names and isinstance(value, float) and value.is_integer() else value
        for name, value in entries.items()
    }


def _hashable(value: Any) -> Any:
    """What is equal for equal values of JSON, and has a hash."""
    if isinstance(value, Mapping):
        return frozenset((name, _hashable(entry)) for name, entry in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _checked_kernel(kernel: Any) -> str | dict[str, Any]:
    entries = dict(kernel) if isinstance(kernel, Mapping) else {"name": kernel}
    if not isinstance(entries.get("name"), str):
        raise SettingError(f'kernel is {quoted(kernel)}; give a key, or {{"name": key, "theta": [...]}}.')
    for name in entries:
        if name not in (choices := ("name", "theta", "start", *OPTIONS)):
            raise SettingError(f"kernel has no entry {quoted(name)}{closest(name, choices)}")
    options = checked_options(entries)
    entries = {name: value for name, value in entries.items() if name not in OPTIONS}
    start = entries.get("start", SEVERAL_STARTS)
    if not is_one_of(start, STARTS) or len(entries) > 2:
        ways = " or ".join(f'"start": "{way}"' for way in STARTS)
        raise SettingError(f"kernel is {quoted(kernel)}; give {ways}, or theta in place of it.")
    if start == SEVERAL_STARTS:
        entries.pop("start", None)
    named = _plain("kernel", entries)
    named["name"] = kernels.make(named["name"], 1).key  # "se * linear" and "se*linear" are one kernel
    if "theta" in named:
        theta = named["theta"] if isinstance(named["theta"], list) else [named["theta"]]
        named["theta"] = [float(number("An entry of theta", x, whole=False, low=-100, high=100)) for x in theta]
    named |= options
    return named if len(named) > 1 else named["name"]


def _checked_budget(budget: Any) -> dict[str, Any]:
    budget = named_limits(budget)
    if "steps" in budget:
        budget["steps"] = _whole("The budget's steps", budget["steps"])
    if "seconds" in budget:
        budget["seconds"] = float(number("The budget's seconds", budget["seconds"], whole=False, low=0, above=True))
    return budget


def _refuse_lone_surrogates(values: Mapping[str, Any]) -> None:
    """Refuse texts that no file and no link can hold, such as "\\ud800"; JSON can write them."""
    try:
        json.dumps(values, ensure_ascii=False, default=_as_json).encode()
    except UnicodeEncodeError as error:
        half = quoted(error.object[error.start : error.end])
        raise SettingError(f"A text of the spec has half of a character, {half}; write the whole one.") from None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_as_json)


def _as_json(value: Any) -> Any:
    """Numbers and arrays of NumPy and torch as JSON represents them, such as a theta that was learned."""
    if not isinstance(value, (np.generic, np.ndarray, torch.Tensor)) or listed(value) is value:
        raise TypeError(f"JSON cannot represent a {type(value).__name__}.")
    return listed(value)


def _plain(name: str, value: Any) -> Any:
    """A copy that is made of JSON's own types."""
    try:
        text = _canonical(value)
    except (TypeError, ValueError, RecursionError):
        raise SettingError(f"{name} is {quoted(value)}; give text, finite numbers, lists and dicts of them.") from None
    if len(text) > LARGEST:
        raise SettingError(f"{name} is {len(text)} characters of JSON; at most {LARGEST} are taken.")
    return json.loads(text)


def in_words(value: Any) -> str:
    """Write a value of a spec without quotes and braces, such that different values stay different.

    Parameters
    ----------
    value : object
        What JSON can hold. The entry "name" of a mapping stands before the others. An empty text or mapping is "none".

    Examples
    --------
    >>> in_words({"n": 100, "name": "hypercube"})
    'hypercube (n 100)'
    >>> in_words({"seconds": 5.0})
    '(seconds 5)'
    >>> in_words([0.5, True, 1e-10])
    '[0.5 on 1e-10]'
    """
    if isinstance(value, str):
        return value or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, Mapping):
        entries = ", ".join(f"{key} {in_words(entry)}" for key, entry in value.items() if key != "name")
        name = in_words(value["name"]) if "name" in value else ""
        return f"{name} ({entries})".strip() if entries else name or "none"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(in_words, value)) + "]"
    return json.dumps(value, default=quoted)
