"""The hyperparameters of a run, a posterior or a spec as a table: named, in the units of the file.

    standard error of value_i = value_i * sqrt(diag(J H^-1 J')_i),   H = d2 F / df2,   theta = T(f),   J = dT/df

H is the curvature of the minimised objective in the free numbers f (`kernels.theta.free_parameters`), by differences of
its gradient: the normal approximation of the likelihood of log values, or of their posterior where there are priors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, overload

import param
import torch
from torch import Tensor

from .display import InPanel, html_rows, text_table
from .errors import SettingError
from .kernels.row_scaled import unscaled_kernel
from .kernels.theta.free_parameters import FreeParameters
from .kernels.theta.options import OPTIONS, checked_options
from .kernels.theta.restrictions import (
    Parameter,
    by_entry,
    kernel_parameters,
    matching,
    matching_all,
    options_of,
    tied_entries,
)
from .problem import Dataset

if TYPE_CHECKING:
    import pandas as pd

STEP = 1e-4  # of log values, for the curvature
FLAT = 1e-6  # an eigenvalue of the curvature below this share of the largest one is rounding
LEAST_SHARE = 1e-3  # of a parameter along such directions; its standard error is then unknown
COLUMNS = ("value", "unit", "start", "bounds", "learned", "prior", "gradient", "standard_error")  # that a text shows


class Hyperparameter(param.Parameterized):
    """One hyperparameter, as a row of the table; its fields are parameters that can be bound and watched."""

    name = param.String(doc="The name in a spec, such as se-ard.lengthscale[width].")
    part = param.String(doc="Key of the part of the kernel; empty for the noise.")
    what = param.String(doc="What the number is, such as lengthscale.")
    input = param.String(doc="Name of the input, if there is one parameter per input.")
    value = param.Number(1.0, bounds=(0.0, None), inclusive_bounds=(False, True), doc="In the units of the file.")
    unit = param.String(doc="Unit of the value; empty for a number without unit.")
    transform = param.String("log", doc="What learning moves: the logarithm of the value.")
    bounds = param.Parameter((None, None), doc="Least and largest value, None for none.")
    fixed = param.Boolean(False, doc="Whether it keeps its value, and is not learned.")
    partners = param.List([], item_type=str, doc="Names of others that it is tied to: their values are equal.")
    prior = param.String(doc="Prior density, such as lognormal(0, 1); empty for none.")
    start = param.Number(math.nan, doc="Where learning began.")
    gradient = param.Number(math.nan, doc="Derivative of the minimised objective in the log value, in nat.")
    standard_error = param.Number(math.nan, doc="From the curvature of the objective, in the units of the file.")

    @property
    def tied(self) -> str:
        """Names of those that it is tied to, as one text."""
        return ", ".join(self.partners)

    @property
    def learned(self) -> str:
        """What learning does with it, in words."""
        if self.fixed:
            return "fixed"
        return f"tied to {self.tied}" if self.tied else "learned"


class Hyperparameters(InPanel, Sequence[Hyperparameter]):
    """The hyperparameters of a kernel and its noise, one row each, in the order of theta.

    Parameters
    ----------
    rows : list of Hyperparameter
        One per entry of theta.
    kernel_key : str
        The kernel that they belong to.

    Examples
    --------
    >>> run.hyperparameters["noise"].value
    0.28
    >>> gpx.Spec("ml", data="snelson-like", kernel=run.hyperparameters.kernel(fixed=["noise"]))
    """

    def __init__(self, rows: list[Hyperparameter], kernel_key: str) -> None:
        self._rows, self.kernel_key = rows, kernel_key

    @overload
    def __getitem__(self, which: int | str) -> Hyperparameter: ...
    @overload
    def __getitem__(self, which: slice) -> list[Hyperparameter]: ...
    def __getitem__(self, which: int | str | slice) -> Hyperparameter | list[Hyperparameter]:
        if not isinstance(which, str):
            return self._rows[which]
        found = self.matching(which)
        if len(found) > 1:
            names = ", ".join(row.name for row in found)
            raise SettingError(f"{which!r} names {len(found)} hyperparameters: {names}. Give one of these names.")
        return found[0]

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, which: object) -> bool:
        """Whether a row is one of these, or a name means at least one of them."""
        if not isinstance(which, str):
            return which in self._rows
        with suppress(SettingError):
            return bool(self.matching(which))
        return False

    def __iter__(self) -> Iterator[Hyperparameter]:
        return iter(self._rows)

    def matching(self, pattern: str) -> list[Hyperparameter]:
        """Return the rows that a name with wildcards means; SettingError if there is none."""
        return [self._rows[each.entry] for each in matching(self._parameters, pattern)]

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        """What names are looked up in."""
        return tuple(Parameter(i, row.part, row.what, row.input, row.unit, 1.0) for i, row in enumerate(self._rows))

    def kernel(self, **options: Any) -> dict[str, Any]:
        """Return the kernel of a spec that begins at these values, with these restrictions.

        Parameters
        ----------
        **options : object
            "values", "fixed", "bounds", "tied" or "priors" as `Spec` takes them. Values change those of this table; the
            others take the place of the present ones. A present value outside new bounds begins at the nearer one, and
            parameters that are tied begin at the value given for one of them, or at the present one of that which is
            fixed, or of the first.

        Returns
        -------
        dict
            What `Spec` takes as `kernel`.
        """
        present: dict[str, Any] = {
            "fixed": [row.name for row in self._rows if row.fixed],
            "bounds": {row.name: list(row.bounds) for row in self._rows if row.bounds != (None, None)},
            "tied": [[row.name, *row.partners] for row in self._rows if row.partners],
            "priors": {row.name: row.prior for row in self._rows if row.prior},
        }
        if unknown := set(options) - set(OPTIONS):
            raise SettingError(f"A kernel has no {sorted(unknown)[0]!r}; give {', '.join(OPTIONS)}.")
        asked = checked_options(options)
        chosen = checked_options(present | options)
        given, bounds = (by_entry(self._parameters, asked.get(name, {})) for name in ("values", "bounds"))
        fixed = {each.entry for each in matching_all(self._parameters, chosen.get("fixed", ()))}
        values = dict(enumerate(row.value for row in self._rows)) | given
        for entries in [[entry] for entry in values] + tied_entries(self._parameters, chosen.get("tied", ())):
            if named := [entry for entry in entries if entry in given]:
                values |= {entry: given[named[0]] for entry in entries if entry not in given}
                continue
            limits = [bounds[entry] for entry in entries if entry in bounds]
            leading = next((entry for entry in entries if entry in fixed), entries[0])
            common = max([values[leading], *(low for low, _ in limits if low)])
            common = min([common, *(high for _, high in limits if high is not None)])
            values |= dict.fromkeys(entries, common)
        chosen["values"] = {row.name: values[entry] for entry, row in enumerate(self._rows)}
        return {"name": self.kernel_key, **chosen}

    def frame(self) -> pd.DataFrame:
        """Return one row per hyperparameter, with the name as index."""
        import pandas as pd

        columns = ["tied" if name == "partners" else name for name in Hyperparameter.param if name != "name"]
        rows = [{name: getattr(row, name) for name in columns} for row in self._rows]
        return pd.DataFrame(rows, index=pd.Index([row.name for row in self._rows], name="name"), columns=columns)

    def __repr__(self) -> str:
        return text_table(self._cells())

    def _repr_html_(self) -> str:
        """The same table; names and units are escaped."""
        return html_rows(self._cells())

    def _cells(self) -> list[list[str]]:
        """The table with its headings, without columns that say nothing."""
        headings = ["", *(name.replace("_", " ") for name in COLUMNS)]
        cells = [headings, *([row.name, *self._texts(row)] for row in self._rows)]
        shown = [k for k in range(len(cells[0])) if not k or any(line[k] for line in cells[1:])]
        return [[line[k] for k in shown] for line in cells]

    def _texts(self, row: Hyperparameter) -> list[str]:
        """The cells of a row; empty where there is nothing to say."""
        low, high = row.bounds
        bounds = "" if row.bounds == (None, None) else f"{_text(low or 0.0)} to {'' if high is None else _text(high)}"
        numbers = {name: _text(getattr(row, name)) for name in ("value", "start", "gradient", "standard_error")}
        texts = {"unit": row.unit, "bounds": bounds.strip(), "learned": row.learned, "prior": row.prior}
        return [(numbers | texts)[name] for name in COLUMNS]


def _text(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def hyperparameters(
    kernel: Any,
    train: Dataset,
    theta: Tensor,
    start: Tensor | None = None,
    gradient: Callable[[Tensor], Tensor] | None = None,
    errors: bool = True,
) -> Hyperparameters:
    """Make the table.

    Parameters
    ----------
    kernel : Covariance
        The kernel, with its restrictions.
    train : Dataset
        The rows, or none of them, which know the names and units of inputs and target.
    theta : Tensor [p]
        The present log-hyperparameters. If a method has features of its own, theta is longer and the table has the
        noise alone, its last entry.
    start : Tensor [p], optional
        Where learning began.
    gradient : callable, optional
        The gradient of the objective of the data at a theta. With it the table has derivatives and standard errors, at
        the cost of two calls per free number.
    errors : bool, default True
        Whether there are standard errors; the derivatives alone take one call.
    """
    parameters = kernel_parameters(kernel, train)
    own = len(theta) != len(parameters)  # features of a method in place of the kernel
    shown = parameters[-1:] if own else parameters
    derivatives, deviations = dict[int, float](), dict[int, float]()
    if gradient is not None and not own:
        derivatives, deviations = _curvature(kernel, theta, gradient, errors)
    rows = []
    for each in shown:
        entry = -1 if own else each.entry
        value = math.exp(float(theta[entry])) * each.factor
        bounds, fixed, partners, prior = options_of(kernel, each, parameters)
        rows.append(
            Hyperparameter(
                name=each.name, part=each.part, what=each.what, input=each.input, value=value, unit=each.unit,
                bounds=bounds, fixed=fixed, partners=partners, prior=prior,
                start=math.nan if start is None else math.exp(float(start[entry])) * each.factor,
                gradient=derivatives.get(each.entry, math.nan),
                standard_error=deviations.get(each.entry, math.nan) * value,
            )
        )  # fmt: skip
    return Hyperparameters(rows, unscaled_kernel(kernel).key)


def _curvature(
    kernel: Any, theta: Tensor, gradient: Callable[[Tensor], Tensor], errors: bool
) -> tuple[dict[int, float], dict[int, float]]:
    """The derivative in each free entry of theta, and with `errors` the standard deviation of each log value."""
    restrictions, none = kernel.restrictions, torch.full_like(theta, math.inf)
    free = FreeParameters.of(theta, [], [], -none, none) if restrictions is None else restrictions.parameters

    def in_free(f: Tensor) -> Tensor:
        full = free.full(f)
        total = gradient(full)
        return free.sums(total if restrictions is None else total + restrictions.penalty(full)[1])

    f = free.free(theta)
    g, steps = in_free(f), STEP * torch.eye(len(f) if errors else 0, len(f), dtype=f.dtype, device=f.device)
    H = [(in_free(f + step) - in_free(f - step)) / (2.0 * STEP) for step in steps]
    inside = (f > free.lower) & (f < free.upper)  # at a bound there is no normal approximation
    sd = torch.full_like(f, math.nan)
    if H and bool(inside.any()):
        curvature = torch.stack(H)[inside][:, inside].double().cpu()
        if bool(curvature.isfinite().all()):
            lam, Q = torch.linalg.eigh(0.5 * (curvature + curvature.T))
            curved = lam > FLAT * float(lam[-1].clamp_min(0.0))
            variance = (Q[:, curved].square() / lam[curved]).sum(1)  # [q]
            undetermined = Q[:, ~curved].square().sum(1) > LEAST_SHARE
            sd[inside] = variance.sqrt().where(~undetermined, math.nan).to(sd)
    entries = [(entry, group) for entry, group in enumerate(free.group.tolist()) if group >= 0]
    return {entry: float(g[group]) for entry, group in entries}, {entry: float(sd[group]) for entry, group in entries}
