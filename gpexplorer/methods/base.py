"""A method is a family of settings and a generator of steps; naming its key registers it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable
from typing import Any, ClassVar, Self

import param

from ..problem import Channel, Cost, Outcome, Posterior, Problem, Step

Steps = Generator[Step, None, Outcome]
registry: dict[str, type[Method]] = {}


class Method(param.ParameterizedABC):
    """One algorithm: parameters are its settings (bounds are mathematics, softbounds taste, doc a sentence).

    A subclass with a `key` is final and registered. `steps` reads no clock, writes no log and touches no global
    random state; what it yields is small and owned by the receiver.
    """

    key: ClassVar[str] = ""
    title: ClassVar[str] = ""
    family: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    equations: ClassVar[dict[str, str]] = {}  # setting or topic -> KaTeX
    State: ClassVar[type]  # the named tuples that its steps hold: a stored run is rebuilt from these and no other class
    Info: ClassVar[type]
    channels: ClassVar[tuple[Channel, ...]] = ()  # fields of info that make a series, the objective first

    own_kernel: ClassVar[bool] = False  # whether its features take the place of the problem's kernel

    map: Callable[..., Iterable[Any]] = map  # does independent pieces of work; see `with_mapper` for a cluster

    seed = param.Integer(0, bounds=(0, None), doc="Seed of every random choice; the same seed gives the same steps.")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.key:
            return
        if cls.key in registry:
            raise TypeError(f"method key {cls.key!r} is taken by {registry[cls.key].__qualname__}")
        registry[cls.key] = cls

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
        """Yield the start before any work, then one Step after another; return why it ended.

        With `resume`, any state yielded before, the first Step yielded is the one that came after it: the trajectory
        continues as if it had not stopped.
        """

    @abstractmethod
    def posterior(self, problem: Problem, state: Any) -> Posterior:
        """The predictive distribution of f at this state, as a function of inputs [t, d]."""

    @abstractmethod
    def cost(self, problem: Problem) -> Cost:
        """What one step costs on this problem, from the formulas."""
