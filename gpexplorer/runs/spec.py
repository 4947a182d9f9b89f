"""What to do, said once: the same JSON is the link, the preset, the code tab, the command line and the store."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import data as data_sets
from .. import kernels
from ..errors import DataError, SettingError, closest
from ..methods.base import registry
from ..problem import Problem
from .budget import named_limits
from .run import Run
from .setting_checks import arguments, number, of_kind, once, quoted, resolve

if TYPE_CHECKING:
    from ..data import Split
    from .store import Store

VERSION = 1
LARGEST = 100_000  # bytes of JSON: a spec is a page of text, not a data set
DTYPES = {"float64": torch.float64, "float32": torch.float32}
LARGEST_INTEGER = 2**53  # what every reader of JSON holds exactly
A_SPEC = "a Spec, of a run its run.spec, of text Spec.from_json(text)"
DEVICE = re.compile(r"cpu|cuda(:\d{1,2})?")


@dataclass(frozen=True)
class Spec:
    """A method, its settings, the data, the kernel and everything else that decides what a run computes.

    `data` is a name, a path, or a dict such as {"name": "friedman1", "n": 1000}; `kernel` a key, or
    {"name": key, "theta": [...]} to start elsewhere (log-hyperparameters in the scaled space, log noise sd last);
    `budget` may hold "steps" and "seconds". Settings are filled in with their defaults, so that a default changed
    later does not change what an old spec means. Raises SettingError naming what to change.
    """

    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    data: str | dict[str, Any] = "snelson-like"
    split: int | dict[str, Any] = 0
    kernel: str | dict[str, Any] = "se-ard"
    seed: int = 0
    device: str = "cpu"
    dtype: str = "float64"
    budget: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in fields(self):
            object.__setattr__(self, entry.name, self._resolved(entry.name))

    def __hash__(self) -> int:
        return hash(self.to_json())

    def to_json(self) -> str:
        """Canonical JSON: sorted names, no spaces, finite numbers; equal specs give equal text."""
        return _canonical({"gpexplorer": VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str | bytes) -> Spec:
        """The spec this text holds; SettingError where it is not one, is too long, or is of another version."""
        held = parsed(text)
        if held.pop("gpexplorer", VERSION) != VERSION:
            raise SettingError(f"The spec is of another version; this gpexplorer reads version {VERSION}.")
        known = [entry.name for entry in fields(cls)]
        for name in held:
            if name not in known:
                raise SettingError(f"A spec has no field {quoted(name)}{closest(name, known)}")
        if "method" not in held:
            raise SettingError(f"The spec names no method. Choose one of {', '.join(sorted(registry))}.")
        return cls(**held)

    def key(self) -> str:
        """The run's name: a hash of all that decides what is computed. The budget only says how much of it."""
        computed = {name: value for name, value in asdict(self).items() if name != "budget"}
        text = _canonical({"gpexplorer": VERSION, **computed})
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def open(self, store: Store | None = None, data: Any = None) -> Run:
        """A run of this spec, taken up where `store` left it; `data` brings what is in memory (a Split, arrays, ...).

        The run's own spec then records what those data held, so that its name still says what was computed.
        """
        if not (store is None or hasattr(store, "take_up")) or isinstance(store, type):
            raise SettingError(f"store is {quoted(store)}; give a Store, say gpexplorer.Store({str(store)!r}).")
        spec, split = self._read(data)
        problem, split = spec._problem(split)
        method = registry[spec.method](seed=spec.seed, **arguments(registry[spec.method], spec.settings))
        if store is None:
            return Run(method, problem, split, spec=spec)
        journal, kept = store.take_up(spec)
        journal.weigh(method.cost(problem).memory)
        return Run(method, problem, split, spec=spec, store=journal, resume=kept.records, outcome=kept.outcome)

    def _read(self, data: Any) -> tuple[Spec, Split]:
        content = self.data.get("content") if isinstance(self.data, dict) else None
        if data is None and content is not None:
            raise DataError(f"The data {quoted(content)} were in memory: pass them again, open(data=...).")
        if data is None:
            return self, data_sets.load(self.data, split=self.split, **self._precision)
        split = data if isinstance(data, data_sets.Split) else data_sets.load(data, split=self.split)
        key = split.key.removesuffix("/scaled")
        if content not in (None, key):
            raise DataError(f"These data are {quoted(key)}; the spec was made for {quoted(content)}.")
        return replace(self, data={"content": key}), split

    @property
    def _precision(self) -> dict[str, str]:
        """Rows that are mapped from a file are written in the precision they are used in: a cast would copy them."""
        mapped = isinstance(self.data, dict) and self.data.get("memory") == "mapped" and "dtype" not in self.data
        return {"dtype": self.dtype} if mapped else {}

    def _problem(self, split: Split) -> tuple[Problem, Split]:
        """The scaled problem on its device, and the scaled split it came from."""
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise SettingError(f'device is {self.device!r}, but torch sees no GPU here; give "cpu".')
        named = self.kernel if isinstance(self.kernel, dict) else {"name": self.kernel}
        kernel = kernels.make(named["name"], split.train.d)
        scaled, place = split.scaled(inputs=kernel.inputs != "counts"), (self.device, DTYPES[self.dtype])
        split = replace(scaled, train=scaled.train.to(*place), test=scaled.test.to(*place))
        start = named.get("theta")
        theta = kernel.start(split.train) if start is None else split.train.y.new_tensor(start)
        if len(theta) != len(kernel.names):
            wanted = f"{len(kernel.names)} ({', '.join(kernel.names)})"
            raise SettingError(f"theta has {len(theta)} entries; {named['name']} on these data takes {wanted}.")
        return Problem(split.train, kernel, theta), split

    def _resolved(self, name: str) -> Any:
        """One field checked and in the form that JSON holds."""
        return getattr(self, f"_check_{name}")(getattr(self, name))

    def _check_method(self, key: Any) -> str:
        if not isinstance(key, str) or key not in registry:
            raise SettingError(f"Method {quoted(key)} is not known{closest(str(key), registry)}")
        return key

    def _check_settings(self, settings: Any) -> dict[str, Any]:
        return resolve(registry[self.method], of_kind("settings", settings, Mapping, "names with their values"))

    def _check_data(self, data: Any) -> str | dict[str, Any]:
        if isinstance(data, (str, PurePath)) and str(data):
            return str(data)
        if isinstance(data, Mapping) and data:
            return _plain("data", dict(data))
        raise SettingError(f"data is {quoted(data)}; give a name, a path or a dict; arrays go to open(data=...).")

    def _check_split(self, split: Any) -> int | dict[str, Any]:
        if isinstance(split, Mapping):
            return _plain("split", dict(split))
        return number("split", split, whole=True, low=0, high=LARGEST_INTEGER)

    def _check_kernel(self, kernel: Any) -> str | dict[str, Any]:
        held = dict(kernel) if isinstance(kernel, Mapping) else {"name": kernel}
        if not set(held) <= {"name", "theta"} or not isinstance(held.get("name"), str):
            raise SettingError(f'kernel is {quoted(kernel)}; give a key, or {{"name": key, "theta": [...]}}.')
        named = _plain("kernel", held)
        named["name"] = kernels.make(named["name"], 1).key  # "se * linear" and "se*linear" are one kernel
        if "theta" in named:
            theta = named["theta"] if isinstance(named["theta"], list) else [named["theta"]]
            named["theta"] = [float(number("An entry of theta", x, whole=False, low=-100, high=100)) for x in theta]
        return named if "theta" in named else named["name"]

    def _check_seed(self, seed: Any) -> int:
        return number("seed", seed, whole=True, low=0, high=LARGEST_INTEGER)

    def _check_device(self, device: Any) -> str:
        if not isinstance(device, str) or not DEVICE.fullmatch(device):
            raise SettingError(f'device is {quoted(device)}; give "cpu", "cuda" or "cuda:0".')
        return device

    def _check_dtype(self, dtype: Any) -> str:
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise SettingError(f"dtype is {quoted(dtype)}; give one of {', '.join(DTYPES)}.")
        return dtype

    def _check_budget(self, budget: Any) -> dict[str, Any]:
        budget = named_limits(budget)
        if "steps" in budget:
            budget["steps"] = number("The budget's steps", budget["steps"], whole=True, low=0, high=LARGEST_INTEGER)
        if "seconds" in budget:
            budget["seconds"] = float(number("The budget's seconds", budget["seconds"], whole=False, low=0, above=True))
        return budget


def named_specs(owner: str, specs: Any) -> dict[str, Spec]:
    """Several specs by their names, such as the lanes of a race; SettingError where these are none."""
    if not isinstance(specs, Mapping) or not specs:
        raise SettingError(f'{owner} takes {{"its name": Spec(...)}}, one at least, and not {quoted(specs)}.')
    return {name: of_kind(f"{owner}: {quoted(name)}", spec, Spec, A_SPEC) for name, spec in specs.items()}


def parsed(text: str | bytes) -> dict[str, Any]:
    """The object in this text, its fields not looked at yet; SettingError where it is none, or too long."""
    if not isinstance(text, (str, bytes, bytearray)):
        raise SettingError(f"The spec is {quoted(text)}; give its JSON as text.")
    if len(text) > LARGEST:
        raise SettingError(f"The spec is longer than {LARGEST} characters, the most that are read.")
    try:
        held = json.loads(text, object_pairs_hook=once)
    except SettingError:
        raise
    except (ValueError, RecursionError):
        raise SettingError("The spec is not JSON: it must be one object in braces.") from None
    if not isinstance(held, dict):
        raise SettingError(f"The spec is {quoted(held)}; it must be one object in braces.")
    return held


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_listed)


def _listed(value: Any) -> Any:
    """Numbers and arrays of NumPy and torch as JSON holds them, such as a theta that was learned."""
    if not isinstance(value, (np.generic, np.ndarray, torch.Tensor)):
        raise TypeError(f"JSON holds no {type(value).__name__}.")
    return value.tolist()


def _plain(name: str, value: Any) -> Any:
    """A copy made of JSON's own types."""
    try:
        text = _canonical(value)
    except (TypeError, ValueError, RecursionError):
        raise SettingError(f"{name} is {quoted(value)}; give text, finite numbers, lists and dicts of them.") from None
    if len(text) > LARGEST:
        raise SettingError(f"{name} is {len(text)} characters of JSON; at most {LARGEST} are taken.")
    return json.loads(text)
