"""Posteriors as torch modules, for `torch.export` and servers that run exported graphs.

    forward(X [t, d], in the units of the file) -> mean [t], variance [t]

A module runs the code of the posterior itself, with its tensors as buffers. While `torch.export` records it, kernels
compute distances from differences of inputs, one input after another, so that no decision depends on the data. Apart
because it knows `torch.nn` and no kind of posterior, and `Posterior` no module.

Apart because exported graphs allow fewer operations than a posterior uses.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

from torch import Tensor, nn

from ...errors import PosteriorError

Places = dict[Any, Any]  # attributes or indices, each with the name of a buffer or with the places within
PACKAGE = __name__.partition(".")[0]


class TorchPosterior(nn.Module):
    """A posterior as a module that predicts what a call of it does, noise included if it is of y.

    Parameters
    ----------
    posterior : Posterior
        Its tensors become buffers, which move and are exported with the module.

    Raises
    ------
    PosteriorError
        If a variance of it is not that of one factor, or a kernel does not take columns of numbers.
    """

    def __init__(self, posterior: Any) -> None:
        super().__init__()
        self.posterior, self.is_scaled = _prepared(posterior), posterior.kind in ("units", "average")
        self.names: dict[int, str] = {}  # of buffers, by the identity of their tensors
        self.places = self._register(self.posterior, ())

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [t] and variance [t] at inputs [t, d]."""
        posterior = _with_buffers(self.posterior, self.places, self)
        marginals = posterior.block_marginals(X if self.is_scaled else X.to(posterior.like.dtype))
        mean, var = (posterior.observed(marginals) if posterior.of == "y" else marginals).moments
        return mean, var

    def _register(self, thing: Any, path: tuple[str, ...]) -> Places:
        """Make the tensors of an object buffers, those of its parts included, and return their places."""
        places: Places = {}
        for key, value in _entries(thing):
            inside = (*path, str(key).strip("_"))
            if not isinstance(value, Tensor):
                places[key] = self._register(value, inside)
            elif value.numel():
                if id(value) not in self.names:
                    self.names[id(value)] = "_".join(inside)
                    self.register_buffer(self.names[id(value)], value.detach())
                places[key] = self.names[id(value)]
        return {key: place for key, place in places.items() if place}


def _entries(thing: Any) -> list[tuple[Any, Any]]:
    """The parts of a sequence, or the attributes of an object of this package."""
    if isinstance(thing, tuple | list):
        return list(enumerate(thing))
    is_own = type(thing).__module__.partition(".")[0] == PACKAGE and hasattr(thing, "__dict__")
    return list(vars(thing).items()) if is_own else []


def _with_buffers(thing: Any, places: Places | str, module: nn.Module) -> Any:
    """A copy of an object that has the buffers of a module in these places."""
    if isinstance(places, str):
        return module.get_buffer(places)
    if isinstance(thing, tuple | list):
        parts = [_with_buffers(part, places[k], module) if k in places else part for k, part in enumerate(thing)]
        return type(thing)(*parts) if hasattr(thing, "_fields") else type(thing)(parts)
    other = object.__new__(type(thing))
    for name, value in vars(thing).items():
        object.__setattr__(other, name, _with_buffers(value, places[name], module) if name in places else value)
    return other


def _prepared(posterior: Any) -> Any:
    """The posterior without guards, after it has computed what it keeps; PosteriorError if it cannot be a module."""
    if posterior.kind in ("average", "units", "unit rows", "widened"):
        other = copy.copy(posterior)
        if posterior.kind == "average":
            other.parts = tuple(_prepared(part) for part in posterior.parts)
        else:
            other.inner, other.guard = _prepared(posterior.inner), nullcontext
        return other
    is_factored = posterior.kind in ("inducing", "features") or hasattr(getattr(posterior, "solver", None), "L")
    if not is_factored:
        raise PosteriorError(
            f"A {type(posterior).__name__} cannot be a torch module, because its variances are not those of one factor."
        )
    kernel: Any = getattr(posterior, "kernel", None)
    if getattr(kernel, "inputs", "real") != "real":
        raise PosteriorError(f"Kernel {kernel.key!r} cannot be part of a torch module: its inputs are not numbers.")
    posterior.moments(posterior.examples())  # a Cholesky factor, or the functions of a grid
    return posterior
