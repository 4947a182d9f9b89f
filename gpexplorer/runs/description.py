"""What a run knows of the spec that describes it: the fields, and what a person has changed in the run since.

`Spec.open` makes a run, so `spec` imports `opening` and `run`. They name a spec by `Description`, which holds the
fields, and not by `Spec`, which checks them: otherwise the three modules would import one another in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from ..errors import StoreError
from ..problem import Problem


@dataclass(frozen=True)
class Description:
    """The fields of a `Spec`, which describes them. `spec.Spec` is the one class that has them."""

    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    data: str | dict[str, Any] = "snelson-like"
    split: int | dict[str, Any] | Literal["all"] = 0
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


class Change(NamedTuple):
    """One change: the index of the last record before it, what was changed, and whether hyperparameters were."""

    after: int
    what: str
    of_problem: bool

    def __str__(self) -> str:
        return f"{self.what} after step {self.after}"


@dataclass(frozen=True)
class Changes:
    """The changes of a run and of the runs that it was forked from. It is false if the run is that of its spec.

    Attributes
    ----------
    problem : Problem
        The problem that the run of the spec has.
    made : tuple of Change
        The changes, in order.
    """

    problem: Problem
    made: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.made)

    def __str__(self) -> str:
        return ", ".join(map(str, self.made))

    def forked(self, at: int, has_step: bool, before: Problem, after: Problem, what: str) -> Changes:
        """The changes of a fork.

        Parameters
        ----------
        at : int
            The index of the last record that both runs share.
        has_step : bool
            Whether another step follows it.
        before, after : Problem
            The problem of the run that is forked, and that of the fork.
        what : str
            The change in words, if they are known.
        """
        kept = [change for change in self.made if change.after < at]
        dropped = [change for change in self.made if change.after >= at and change.of_problem]
        has_own = after is self.problem
        if after is before and not has_own:  # restrictions hold for the fork as well, whatever record it begins at
            kept += [change._replace(after=at) for change in dropped]
        if what or has_step:
            kept.append(Change(at, what or "a step by hand", of_problem=after is not before and not has_own))
        elif not has_own and not any(change.of_problem for change in kept):
            kept.append(Change(at, "other hyperparameters", of_problem=True))
        return replace(self, made=tuple(kept))

    def require_none(self) -> None:
        """Raise StoreError if there are changes: the run cannot be kept under the name of its spec."""
        if not self.made:
            return
        way_out = "Keep it by run.save_page, its model by run.posterior().save, or its numbers by run.table()"
        if any(change.of_problem for change in self.made):
            way_out += ", or run a Spec with kernel=run.hyperparameters.kernel(), which begins with these values"
        raise StoreError(
            f"This run was changed by hand ({self}), so it is not the run of its spec and cannot be kept under its "
            f"name. {way_out}."
        )


def changes_in_words(options: Mapping[str, Any]) -> str:
    """The options of `Run.with_hyperparameters` in words, such as "noise = 0.9, other fixed"."""
    values = [f"{name} = {float(value):.4g}" for name, value in dict(options.get("values") or {}).items()]
    fixed = [f"{name} fixed" for name in options.get("fixed") or ()]
    others = [f"other {name}" for name in options if name not in ("values", "fixed")]
    return ", ".join(values + fixed + others) or ("nothing fixed" if "fixed" in options else "learning begun again")
