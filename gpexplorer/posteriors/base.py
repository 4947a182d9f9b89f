"""What every posterior answers: moments, joint covariances, samples, sample paths and gradients.

    f | y ~ GP(mean, cov),   y* = f(x*) + e,  e ~ N(0, noise)

A posterior of one kind defines four things for a block of rows: `moments`, `joint`, `draw_paths` and `row_numbers`. All
else follows from them here. The result of every function can be differentiated with respect to X by autograd.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..data.in_memory import refuse_other_order
from ..errors import DataError, PosteriorError, SettingError, is_one_of, number, quoted
from ..linalg.blocks import mirrored_, row_blocks
from ..linalg.randomness import generator
from ..memory import machine_memory
from ..problem import Prediction, rows_like
from .marginals import Marginals, NormalMarginals, numbers
from .sample_paths import FEATURES, Paths, checked_seed, checked_size
from .saved.model_file import TorchPosterior, save_posterior
from .saved.parts import Parts, check_moments, kinds

Of = Literal["f", "y"]
Kind = TypeVar("Kind", bound="Posterior")
MAX_JOINT = 5000  # rows of one joint sample; its covariance needs an eigendecomposition
SAMPLE_COPIES = 3  # of the samples: normal numbers, those times a root, and with the mean
COPIES = 4.0  # of a covariance matrix that exist at once while it is computed, at least


def check_fits(t: int, s: int, like: Tensor) -> None:
    """Raise a PosteriorError if a covariance [t, s] does not fit into the memory of this machine.

    The system would end the process without a word. A GPU raises an error by itself.
    """
    need, memory = COPIES * like.element_size() * t * s, machine_memory()
    if like.is_cpu and need > memory:
        raise PosteriorError(
            f"The covariance of {t:,} and {s:,} rows takes at least {need / 1e9:.3g} GB while it is computed, and this "
            f"machine has {memory / 1e9:.3g} GB of memory: give fewer rows at a time, or draw functions with "
            "paths(size, seed) and evaluate them at any number of rows."
        )


class Gradient(NamedTuple):
    """Derivatives of the predictive mean and of the predictive variance with respect to each input."""

    mean: Tensor  # [t, d]
    var: Tensor  # [t, d] of f and of y alike where the noise is the same everywhere


class Posterior(ABC):
    """The predictive distribution of f, or of an observation y = f + noise.

    Parameters
    ----------
    like : Tensor
        A tensor with the device and precision in which the posterior computes.
    noise_variance : float
        What an observation y has in addition to the variance of f.

    Attributes
    ----------
    of : {"f", "y"}
        What a call predicts, and what `noise=None` means.

    Notes
    -----
    A call `posterior(X)` gives mean and variance together. Rows are processed in blocks, so that the memory beside the
    result does not grow with the number of rows.
    """

    kind: ClassVar[str] = ""  # the name of the kind in files; a posterior without one cannot be saved
    level: ClassVar[int] = 0  # a kind may contain the kinds of lower levels, in memory and in files
    joint_by_blocks: ClassVar[bool] = True  # False: `joint` takes any number of rows
    of: Of = "f"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register a kind for the files that name it."""
        super().__init_subclass__(**kwargs)
        if kind := cls.__dict__.get("kind"):
            kinds[kind] = cls

    def __init__(self, like: Tensor, noise_variance: float = 0.0) -> None:
        self.like, self.noise_variance = like.detach().new_empty(0), float(noise_variance)

    def __repr__(self) -> str:
        return f"<posterior of {self.of}: {self._contents()}>"

    def _contents(self) -> str:
        """What the posterior consists of in a few words, such as "inducing, 6 points"."""
        inner, kind = getattr(self, "inner", None), self.kind or type(self).__name__
        return f"{kind}, {inner._contents()}" if isinstance(inner, Posterior) else kind

    @abstractmethod
    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        """Mean [b] and variance [b] of f at one block of rows; rounding may make a variance negative."""

    @abstractmethod
    def joint(self, X: Any, Z: Any) -> Tensor:
        """Covariance [b, c] of f between one block of rows and the rows Z."""

    def covariances(self, X: Any, Z: Any) -> Tensor:
        """Covariance [t, s] of f between any numbers of rows, in memory of its own; see `joint`.

        If both are the same object, one half is computed, and the other is the same to the last digit.
        """
        K = self.like.new_empty(len(X), len(Z))
        if K.numel() and not self.joint_by_blocks:
            K = self.joint(X, Z)
        elif K.numel():
            for rows in row_blocks(len(X), self.like.element_size() * (self.row_numbers + 2 * len(Z)), self.like):
                begin = rows.start if X is Z else 0
                K[rows, begin:] = self.joint(X[rows], Z[begin:])
        return mirrored_(K) if X is Z else K

    @abstractmethod
    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        """Draw `size` functions; the result takes one block of rows and gives their values [size, b]."""

    @property
    @abstractmethod
    def row_numbers(self) -> int:
        """How many numbers one row of a block takes in memory."""

    @property
    def path_numbers(self) -> int:
        """How many numbers one drawn function takes, at least."""
        inner = getattr(self, "inner", None)
        return inner.path_numbers if isinstance(inner, Posterior) else FEATURES

    def write(self, parts: Parts) -> None:
        """Add what predictions need to a file; kinds that can be saved do."""
        raise PosteriorError(f"A {type(self).__name__} cannot be saved: only numbers can, and it is a function.")

    @classmethod
    def from_parts(cls, parts: Parts) -> Posterior:
        """Make the posterior from what `write` has written; kinds that can be saved do."""
        raise PosteriorError(f"A {cls.__name__} cannot be read from a file.")

    def examples(self) -> Any:
        """Rows at which a posterior that was read is tried out, as it computes with them; empty if there are none."""
        return ()

    def check(self) -> None:
        """Raise PosteriorError if numbers that were read contradict each other: moments are tried out."""
        if len(X := self.examples()):
            mean, var = self.moments(X)
            check_moments(mean, torch.stack([var, self.joint(X, X).diagonal()]), self.rounding_scale(X, var))

    def rounding_scale(self, X: Any, var: Tensor) -> Tensor:
        """What rounding errors of variances are relative to: the largest of them, or the prior variance."""
        return var.max().clamp_min(0.0)

    def block_mean(self, X: Any) -> Tensor:
        """Mean [b] of f at one block of rows; kinds whose variance is dear compute it alone."""
        return self.moments(X)[0]

    def rows(self, X: Any) -> Any:
        """Return the inputs as the posterior computes with them: a tensor on its device, or a sequence of objects."""
        return rows_like(X, self.like)

    def asked_for(self: Kind, of: Of, noise_variance: float | None = None) -> Kind:
        """Return the same posterior, of the function ("f") or of a new observation ("y").

        Parameters
        ----------
        of : {"f", "y"}
        noise_variance : float, optional
            Replaces that of the posterior.

        Raises
        ------
        SettingError
            If `of` is another word, or the noise variance is not a finite number of 0 or more.
        """
        if not is_one_of(of, ("f", "y")):
            raise SettingError(f'of is {quoted(of)}; give "f" for the function or "y" for an observation of it.')
        noise = self.noise_variance
        if noise_variance is not None:
            noise = float(number("noise_variance", noise_variance, whole=False, low=0.0))
        return self.changed(of=of, noise_variance=noise)

    def changed(self: Kind, **attributes: Any) -> Kind:
        """Return a copy with other values of some attributes."""
        other = copy.copy(self)
        vars(other).update(attributes)
        return other

    def __call__(self, X: Any) -> Prediction:
        """Mean [t] and variance [t] of what the posterior is of. Variances are never negative."""
        return Prediction(*self.marginals(X).moments)

    def mean(self, X: Any) -> Tensor:
        """Predictive mean [t] of what the posterior is of; unless the target is transformed, it is the same for both.

        Parameters
        ----------
        X : Tensor [t, d], array, frame or sequence
            Inputs.
        """
        return self._of_blocks(self.rows(X), lambda block: [self.block_mean(block)])[0]

    def var(self, X: Any, noise: bool | None = None) -> Tensor:
        """Predictive variance [t].

        Parameters
        ----------
        X : Tensor [t, d], array, frame or sequence
            Inputs.
        noise : bool, optional
            Whether the noise of an observation is added. None: as the posterior was asked for (`of`).
        """
        return self.marginals(X, noise).moments[1]

    def sd(self, X: Any, noise: bool | None = None) -> Tensor:
        """Predictive standard deviation [t]; see `var`."""
        return self.var(X, noise).sqrt()

    def quantile(self, X: Any, q: float | Sequence[float], noise: bool | None = None) -> Tensor:
        """Quantiles of the predictive distribution of each row.

        Parameters
        ----------
        X : Tensor [t, d], array, frame or sequence
            Inputs.
        q : float or sequence of k floats
            Probabilities between 0 and 1, such as 0.9 or (0.025, 0.975).
        noise : bool, optional
            Whether of an observation rather than of f; see `var`.

        Returns
        -------
        Tensor [t], or [k, t] for a sequence
        """
        return self.marginals(X, noise).quantile(q)

    def log_density(self, X: Any, y: Any, noise: bool | None = None) -> Tensor:
        """The log predictive density [t] of one value y [t] per row of X, such as held-out targets; see `var`."""
        refuse_other_order("the rows", X, "y", y)
        values, marginals = numbers("y", y, self.like), self.marginals(X, noise)
        count = len(marginals.moments[0])
        if values.shape not in ((), (count,)):
            raise DataError(f"y has shape {list(values.shape)}; give one value for each of {count:,} rows of X.")
        return marginals.log_density(values)

    def marginals(self, X: Any, noise: bool | None = None) -> Marginals:
        """The predictive distribution of each row, with its density, probabilities and quantiles; see `var`."""
        return self._marginals(self.rows(X), noise)

    def block_marginals(self, X: Any) -> Marginals:
        """The distributions of f at one block of rows; a posterior that is not normal has others."""
        mean, var = self.moments(X)
        return NormalMarginals(mean, var.clamp_min(0.0))

    def observed(self, marginals: Any) -> Marginals:
        """The distributions of observations of f, from those of f."""
        return NormalMarginals(marginals.mean, marginals.var + self.noise_variance)

    def cov(self, X: Any, Z: Any = None, noise: bool | None = None) -> Tensor:
        """Joint covariance.

        Parameters
        ----------
        X : Tensor [t, d], array, frame or sequence
            Inputs.
        Z : likewise [s, d], optional
            Other inputs; by default the same rows.
        noise : bool, optional
            Whether of observations: each row of X then has noise of its own, on the diagonal, if there is no Z.

        Returns
        -------
        Tensor [t, s]

        Raises
        ------
        PosteriorError
            If this posterior knows means and variances only, or the matrix does not fit into the memory of the machine.
        """
        X = self.rows(X)
        Z_rows = X if Z is None else self.rows(Z)
        check_fits(len(X), len(Z_rows), self.like)
        K = self.covariances(X, Z_rows)
        if Z is None and (noise_variance := self._noise(noise)):
            K.diagonal().add_(noise_variance)
        return K

    def sample(self, X: Any, size: int = 1, seed: int = 0, noise: bool | None = None) -> Tensor:
        """Draw joint samples at given rows.

        Parameters
        ----------
        X : Tensor [t, d], array, frame or sequence
            Inputs, t <= 5000.
        size : int, default 1
            Number of samples.
        seed : int, default 0
            The same seed gives the same samples.
        noise : bool, optional
            Whether of observations rather than of f.

        Returns
        -------
        Tensor [size, t]

        Raises
        ------
        PosteriorError
            If there are more rows than one joint covariance may have, or none can be computed.

        Notes
        -----
        t^2 covariances and an eigendecomposition, about 11 t^3 flops. Eigenvalues below 0 are rounding and count as 0.
        """
        X, draw = self.rows(X), generator(checked_seed(seed), "posterior sample")
        size = checked_size(size, SAMPLE_COPIES * len(X))
        if len(X) > MAX_JOINT:
            raise PosteriorError(
                f"A joint sample at {len(X):,} rows needs a covariance matrix of that size; give at most "
                f"{MAX_JOINT:,} rows, or draw functions with paths(size, seed) and evaluate them at any number of rows."
            )
        values, vectors = torch.linalg.eigh(self.cov(X, noise=False).double())
        root = (vectors * values.clamp_min(0.0).sqrt()) @ vectors.T  # [t, t] symmetric, so that no sign is left open
        normal = torch.randn(size, len(X), generator=draw, dtype=torch.float64).to(root.device)
        samples, s2 = self.mean(X) + (normal @ root.T).to(self.like), self._noise(noise)
        if not s2:
            return samples
        e = torch.randn(samples.shape, generator=draw, dtype=torch.float64)  # [size, t]
        return samples + s2**0.5 * e.to(samples)

    def paths(self, size: int = 1, seed: int = 0) -> Paths:
        """Draw functions from the posterior that can be evaluated at any rows.

        Parameters
        ----------
        size : int, default 1
            Number of functions.
        seed : int, default 0
            The same seed gives the same functions.

        Returns
        -------
        Paths
            A function from inputs [t, d] to values of f [size, t].

        Raises
        ------
        PosteriorError
            If the kernel has no random features from which a function could be made.

        References
        ----------
        Wilson et al. (2020), Efficiently sampling functions from Gaussian process posteriors, eq 12.
        """
        size = checked_size(size, self.path_numbers)
        evaluate = self.draw_paths(size, generator(checked_seed(seed), "posterior paths"))
        return Paths(self.rows, evaluate, size, self.like, self.row_numbers + 2 * size)

    def gradient(self, X: Any) -> Gradient:
        """Derivatives [t, d] of mean and variance with respect to the inputs, by autograd.

        Raises
        ------
        PosteriorError
            If the inputs are objects such as strings.
        """
        X = self.rows(X)
        if not isinstance(X, Tensor):
            raise PosteriorError("Derivatives with respect to inputs need numeric columns, but these are objects.")
        parts = [self._block_gradient(X[rows]) for rows in self._blocks(X)]
        if not parts:
            return Gradient(torch.zeros_like(X), torch.zeros_like(X))
        return Gradient(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    @torch.inference_mode(False)
    def with_rows(self: Kind, X: Any, y: Any, noise: Any = None) -> Kind:
        """Return the posterior after more rows, for the same kernel, hyperparameters and weights.

        Parameters
        ----------
        X : Tensor [b, d], array, frame or sequence
            Inputs of the new rows.
        y : Tensor [b] or array
            Their targets.
        noise : Tensor [b] or array, optional
            Noise variance of each new row; by default that of the posterior.

        Returns
        -------
        Posterior
            The same as a fit to old and new rows together, to rounding.

        Raises
        ------
        PosteriorError
            If this kind of posterior does not keep what an update needs, or a row has no finite target or no positive
            noise.
        """
        refuse_other_order("the rows", X, "y", y)
        refuse_other_order("the rows", X, "noise", noise)
        rows, targets = self.rows(X), numbers("y", y, self.like).flatten()
        V = numbers("noise", self.noise_variance if noise is None else noise, self.like)
        if len(rows) != len(targets):
            raise PosteriorError(
                f"{len(rows):,} new rows have {len(targets):,} targets: give one finite target per row."
            )
        if V.ndim and V.shape != targets.shape:
            raise PosteriorError(
                f"noise has shape {list(V.shape)}; give one variance for each of {len(rows):,} new rows."
            )
        V = V.expand(len(targets))
        for name, values, is_right, needed in (
            ("y", targets, targets.isfinite(), "finite target"),
            ("noise", V, V.isfinite() & (V > 0.0), "positive noise variance"),
        ):
            if not bool(is_right.all()):
                row = int((~is_right).nonzero()[0, 0])
                raise PosteriorError(
                    f"{name} has {float(values[row]):g} in row {row + 1} of {len(rows):,} new rows: "
                    f"give one {needed} per row."
                )
        return self.updated(rows, targets, V)

    def updated(self: Kind, X: Any, y: Tensor, V: Tensor) -> Kind:
        """The posterior after these rows, in the units in which it computes; see `with_rows`."""
        raise PosteriorError(
            f"This {type(self).__name__} does not keep what an update by new rows needs; fit the method again."
        )

    def without_rows(self) -> Posterior:
        """The same posterior before any row: the prior, to which rows can be added; PosteriorError if it has none."""
        raise PosteriorError(
            f"The rows of a {type(self).__name__} cannot be left out, because it consists of them; use a method with "
            "inducing points or features."
        )

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write what predictions need to a safetensors file, and return its size in bytes.

        Parameters
        ----------
        path : str or path
            Such as "model.safetensors"; `gpexplorer.load_posterior` reads it.

        Raises
        ------
        PosteriorError
            If the posterior contains something that a file cannot hold.

        Notes
        -----
        No training row is in the file, except for methods that predict from training rows.
        """
        return save_posterior(self, path)

    def to_torch(self) -> torch.nn.Module:
        """Return a module that maps inputs [t, d] to mean [t] and variance [t], for `torch.export` and servers.

        Raises
        ------
        PosteriorError
            If the kernel or the kind of posterior has no such form.
        """
        return TorchPosterior(self)

    def _block_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        with torch.inference_mode(False), torch.enable_grad():
            leaf = X.detach().clone().requires_grad_(True)
            marginals = self.block_marginals(leaf)
            mean, var = (self.observed(marginals) if self.of == "y" else marginals).moments
            zero = 0.0 * leaf.sum()  # an answer that does not depend on the inputs, as the prior's mean, has no graph
            (by_mean,) = torch.autograd.grad(mean.sum() + zero, leaf, retain_graph=True)
            (by_var,) = torch.autograd.grad(var.sum() + zero, leaf)
        return by_mean, by_var

    def _marginals(self, X: Any, noise: bool | None) -> Marginals:
        """Those of all blocks of rows that have been checked."""
        kind: Any = NormalMarginals(self.like, self.like)

        def numbers(block: Any) -> list[Tensor]:
            nonlocal kind
            kind = self.block_marginals(block)
            return kind.numbers

        whole = iter(self._of_blocks(X, numbers))
        of_f = kind.with_numbers(whole)
        return self.observed(of_f) if self.wants_noise(noise) and len(X) else of_f

    def _of_blocks(self, X: Any, numbers: Callable[[Any], list[Tensor]]) -> list[Tensor]:
        """Tensors [t] of all rows from those of each block.

        They are written where those of all rows will be: small results between large temporaries keep memory from being
        used again.
        """
        whole = [self.like, self.like]
        for rows in self._blocks(X):
            parts = numbers(X[rows])
            if rows == slice(0, len(X)):
                return parts
            whole = whole if rows.start else [part.new_empty(len(X)) for part in parts]
            for all_rows, part in zip(whole, parts, strict=True):
                all_rows[rows] = part
        return whole

    def wants_noise(self, noise: bool | None) -> bool:
        """Whether an observation is asked for; None asks for what the posterior is of."""
        if noise is None:
            return self.of == "y"
        if not isinstance(noise, bool | np.bool_):
            raise SettingError(f"noise is {quoted(noise)}; give True for an observation of f, or False for f itself.")
        return bool(noise)

    def _noise(self, noise: bool | None) -> float:
        return self.noise_variance if self.wants_noise(noise) else 0.0

    def _blocks(self, X: Any) -> Iterator[slice]:
        return row_blocks(len(X), self.like.element_size() * max(self.row_numbers, 1), self.like)
