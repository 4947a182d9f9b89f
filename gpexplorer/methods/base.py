"""The base class of methods: settings, a generator of steps, and a registry by key."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from typing import Any, ClassVar, Self, TypeVar

import param
from torch import Tensor

from ..errors import SettingError
from ..posteriors import Posterior
from ..problem import Channel, Cost, Outcome, Problem, Step, channels_of
from .setting_kinds import count

Steps = Generator[Step, None, Outcome]
S = TypeVar("S")
registry: dict[str, type[Method]] = {}


class Method(param.ParameterizedABC):
    """One algorithm. Its parameters are its settings, and it generates steps.

    A subclass with a `key` is registered under it, and is final. Registration raises TypeError if the class lacks
    something that a run, the store, or the page needs.

    Attributes
    ----------
    key, title, family, paper : str
        The name in a spec, the name that people read, the group in lists, and the reference.
    equations : dict
        A formula in KaTeX for a setting or a topic.
    State, Info : type
        The named tuples in the steps of the method. A stored run is rebuilt from these classes and no others.
    channels : tuple of Channel
        Fields of Info that become curves and columns, the objective first. They are those that Info declares; a method
        that names some otherwise sets `channels_of(Info, field=channel(...))`.
    own_kernel : bool
        Whether features of the method take the place of the problem's kernel.
    added_settings : mapping
        Settings that were added after the method was first released, each with the value that gives the earlier
        behaviour, or with a function of the other settings that returns it. A spec that was stored before, with all
        settings of its time, keeps its meaning and its name.
    shorthands : mapping
        Words that a spec may give for a setting, and the settings that each stands for.
    most_inputs : int
        The largest number of inputs; 0 if there may be any.
    example_kernel : str
        A kernel that the method takes, where every method is measured or listed.
    row_noise : tuple of str
        Which noise per row the method takes: "relative", of which a common factor is learned, "known", or none.
    uses_groups : bool
        Whether the rows that the method holds out, if any, are whole groups where rows have them (`Dataset.groups`).
    uses_folds : bool
        Whether the method takes folds that are given with the rows in place of its own (`Dataset.groups`).
    draws : bool
        Whether another seed gives other steps; False for a method that draws no random numbers.
    learned_channel : str
        The channel whose value hyperparameters minimise, without the priors.
    takes_priors : bool
        Whether hyperparameters may have prior densities; `no_priors_because` says why not.
    map : callable
        Computes independent pieces of work, called as the builtin `map` is; see `with_mapper` for a cluster.

    Notes
    -----
    The `bounds` of a setting exclude values that the mathematics forbids, its `softbounds` are the range of the slider,
    and its `doc` is a sentence. `steps` reads no clock, writes no log and does not touch the global random state. What
    it yields is small, and the method does not change it afterwards.
    """

    key: ClassVar[str] = ""
    title: ClassVar[str] = ""
    family: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    equations: ClassVar[dict[str, str]] = {}
    State: ClassVar[type]
    Info: ClassVar[type]
    channels: ClassVar[tuple[Channel, ...]] = ()
    own_kernel: ClassVar[bool] = False
    added_settings: ClassVar[Mapping[str, Any]] = {}
    shorthands: ClassVar[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {}
    most_inputs: ClassVar[int] = 0
    example_kernel: ClassVar[str] = "se-ard"
    row_noise: ClassVar[tuple[str, ...]] = ("relative", "known")
    uses_groups: ClassVar[bool] = False
    uses_folds: ClassVar[bool] = False
    draws: ClassVar[bool] = True
    learned_channel: ClassVar[str] = "objective"
    takes_priors: ClassVar[bool] = True
    no_priors_because: ClassVar[str] = "minimises squared errors of rows left out, to which no log density is added"

    map: Callable[..., Iterable[Any]] = map

    seed = count(0, least=0, doc="Seed of every random choice; the same seed gives the same steps.")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register a class that has a key; refuse one that lacks what the rest of the package needs."""
        super().__init_subclass__(**kwargs)
        if "Info" in vars(cls) and "channels" not in vars(cls) and hasattr(cls.Info, "_fields"):
            cls.channels = channels_of(cls.Info)
        if not cls.key:
            return
        if cls.key in registry:
            raise TypeError(
                f"method key {cls.key!r} is taken by {registry[cls.key].__qualname__}; choose another key for "
                f"{cls.__qualname__}"
            )
        _refuse_incomplete(cls)
        registry[cls.key] = cls

    @classmethod
    def used_settings(cls) -> dict[str, Any]:
        """Return the settings that have an effect, by name; a setting without one has a negative `precedence`.

        A setting that a method inherits from its family and does not use is still accepted, since stored Specs name it,
        but the page, the sweep and the catalogue do not show it.
        """
        return {
            name: setting
            for name, setting in cls.param.objects().items()
            if name != "name" and (setting.precedence is None or setting.precedence >= 0)
        }

    @classmethod
    def beginning(cls, kernel: Any, theta: Tensor) -> Tensor:
        """Where the method can begin, given the best theta [p] of several starts."""
        return theta

    @classmethod
    def check_restrictions(cls, problem: Problem) -> None:
        """Raise SettingError if the method cannot obey the restrictions of this problem's hyperparameters.

        A method whose features take the place of the kernel knows the noise alone, and one without a likelihood has no
        place for a prior.
        """
        restrictions: Any = problem.kernel.restrictions  # type: ignore[attr-defined]
        restricted, names = restrictions.parameters.is_restricted, problem.kernel.names
        if cls.own_kernel and bool(restricted[:-1].any()):
            name = next(name for name, is_it in zip(names, restricted.tolist(), strict=True) if is_it)
            raise SettingError(
                f"Method {cls.key!r} learns features of its own in place of the kernel and has no {name!r}; restrict "
                "noise, or choose a method of another family."
            )
        if restrictions.named_priors and not cls.takes_priors:
            raise SettingError(
                f"Method {cls.key!r} {cls.no_priors_because}. Give bounds in place of priors, or choose "
                "a method with a likelihood, such as ml or cholqr."
            )

    def with_mapper(self, mapper: Callable[..., Iterable[Any]]) -> Self:
        """Return a copy of this method whose independent pieces of work are done by `mapper`.

        Parameters
        ----------
        mapper : callable
            It is called as the builtin `map` is: a function and one iterable per argument. The results come in the
            order of the pieces. `gpexplorer.runs.studies.cluster.mapped` makes one for a Dask scheduler.

        Returns
        -------
        Method
            A method with the same settings. The method itself does not change.
        """
        copy = type(self)(**self.param.values())
        copy.map = mapper
        return copy

    @abstractmethod
    def steps(self, problem: Problem, resume: Any = None) -> Steps:
        """Generate the steps of the algorithm.

        Parameters
        ----------
        problem : Problem
            Training rows, kernel, and initial theta.
        resume : State, optional
            Any state that was yielded before. The first step is then the one that followed it, and the trajectory
            continues as if it had not stopped.

        Returns
        -------
        Outcome
            Why the method stopped.

        Yields
        ------
        Step
            Without `resume`, the initial state before any work; then one step after another.
        """

    @abstractmethod
    def posterior(self, problem: Problem, state: Any) -> Posterior:
        """The predictive distribution of f at this state, as a function of inputs [t, d]."""

    def theta_gradient(self, problem: Problem, state: Any) -> Callable[[Tensor], Tensor] | None:
        """Return the gradient in theta [p] of the objective that hyperparameters minimise, all else as in this state.

        Returns
        -------
        callable or None
            theta [p] -> gradient [p], without that of the priors. None if the method has no such gradient, or not yet.
        """
        return None

    def set_by_hand(self, problem: Problem, state: Any) -> Step:
        """Return the step in which a person has set theta to that of `problem`; the run continues from its state.

        Learning begins again there, with the restrictions of the problem's kernel. A method that has chosen something
        which does not depend on theta, such as inducing points, keeps it; any other takes its first step again.

        Parameters
        ----------
        problem : Problem
            Its theta is the one to continue from.
        state : State
            Any state of a run on the same rows.
        """
        with closing(self.steps(problem)) as steps:
            step = next(steps)
            step = next(steps, step)
        return Step(step.state, step.info._replace(phase="forced"))

    @abstractmethod
    def cost(self, problem: Problem) -> Cost:
        """The cost of one step on this problem, from formulas."""


def begun(resume: S | None, state: S, info: Any) -> Generator[Step, None, S]:
    """Yield the step before any work, unless a run is resumed; return the state from which to go on."""
    if resume is not None:
        return resume
    yield Step(state, info)
    return state


def _refuse_incomplete(cls: type[Method]) -> None:
    """Raise TypeError, with what to add, if a class that wants to be registered lacks something."""
    name = f"method {cls.key!r} ({cls.__qualname__})"
    undefined = [
        each for each in ("steps", "posterior", "cost") if getattr(getattr(cls, each), "__isabstractmethod__", False)
    ]
    if undefined:
        raise TypeError(
            f"{name} does not define {', '.join(undefined)}; define it as `methods.base.Method` describes it, or leave "
            "out the key if the class is abstract"
        )
    for text in ("title", "family"):
        if not getattr(cls, text):
            raise TypeError(f"{name} has no {text}; add the class attribute {text} = '...'")
    for fields in ("State", "Info"):
        if not hasattr(getattr(cls, fields, None), "_fields"):
            raise TypeError(
                f"{name} has no {fields}: a stored run is rebuilt from it; define a typing.NamedTuple named {fields}, "
                f"and add the class attribute {fields}: ClassVar[type] = {fields}"
            )
    wrong = [channel.name for channel in cls.channels if channel.name not in cls.Info._fields]  # type: ignore[attr-defined]
    if wrong:
        raise TypeError(
            f"{name} has channels that are not fields of its Info: {', '.join(wrong)}; add the fields, or correct the "
            "names"
        )


def end_of_descent(
    optimiser: str, slope: float, allowed: float, evaluations: int, rounds: str = "", limit: float = math.inf
) -> Outcome:
    """Return why a descent ended: its gradient is small, all evaluations are used, or nothing is lower."""
    if slope <= allowed:
        return Outcome("converged", f"The largest derivative is {slope:.2g} after {evaluations} evaluations{rounds}.")
    if evaluations >= limit:
        message = f"All {evaluations} evaluations are done; the largest derivative is {slope:.2g}. Raise evaluations."
        return Outcome("budget", message)
    return Outcome(
        "budget",
        f"{optimiser} finds no lower value after {evaluations} evaluations{rounds}, though the largest derivative is "
        f"{slope:.2g}: rounding may hide it. Use dtype float64, or other initial values.",
    )
