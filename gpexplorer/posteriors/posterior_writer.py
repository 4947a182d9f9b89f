"""Posteriors as files: tensors in the safetensors format, and a description in JSON that says what they are.

    posterior.save("model.safetensors")              posterior = gpx.load_posterior("model.safetensors")

A file holds what predictions need and nothing else. With m inducing inputs that is about m^2 + m d numbers, with p
features p^2 (or p r), and for methods that predict from training rows the rows themselves and one coefficient each;
their Cholesky factor is computed again. Nothing in a file can be run: it holds numbers, names and texts, and every one
of them is checked.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import PosteriorError
from ..features.basis_choices import ChosenFeatures, Fourier, Interpolated, Leading
from ..features.deep import ACTIVATIONS, Network, Scaled
from ..features.learned import LearnedFeatures, LearnedKernel
from ..features.random_fourier import RandomFourier
from ..kernels.row_scaled import RowScaled
from ..mixed_rows import MixedRows
from ..problem import described_rows
from .weights import CovarianceRoot, PrecisionFactor

FORMAT, VERSION, WITH_TRANSFORM = "gpexplorer posterior", 1, 2  # programs that know no transforms refuse version 2
Description = dict[str, Any]


def save_posterior(posterior: Any, path: str | os.PathLike[str]) -> int:
    """Write a posterior to a file, and return the size of the file in bytes.

    Parameters
    ----------
    posterior : Posterior
    path : str or path
        Such as "model.safetensors". A file that exists is replaced at once or not at all.

    Raises
    ------
    PosteriorError
        If the posterior contains something that a file cannot hold, such as a torch module given in Python.
    """
    from safetensors.torch import save_file

    writer = _Writer()
    text = json.dumps(writer.posterior(posterior))
    header = {"format": FORMAT, "version": str(writer.version), "posterior": text}
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # the umask narrows it, as for any file
    mode = temporary.stat().st_mode & 0o777
    try:
        save_file(writer.tensors, temporary, header)
        temporary.chmod(mode)  # safetensors makes files that only their owner can read
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return target.stat().st_size


class _Writer:
    """Describes the parts of a posterior, and collects its tensors by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.version = VERSION

    def posterior(self, posterior: Any) -> Description:
        """Describe a posterior of any kind."""
        kinds: dict[str, Callable[[Any], Description]] = {
            "units": self.units, "inducing": self.inducing, "features": self.regression, "rows": self.of_rows,
            "prior": self.prior, "unit rows": self.unit_rows, "average": self.average,
        }  # fmt: skip
        if posterior.kind not in kinds:
            raise PosteriorError(
                f"A {type(posterior).__name__} cannot be saved: only numbers can, and it is a function."
            )
        head = {"kind": posterior.kind, "noise_variance": posterior.noise_variance, "of": posterior.of}
        return head | kinds[posterior.kind](posterior)

    def average(self, posterior: Any) -> Description:
        """Describe the models of an average; the names of their tensors begin with their numbers."""
        parts = []
        for k, part in enumerate(posterior.parts):
            writer = _Writer()
            parts.append(writer.posterior(part))
            self.version = max(self.version, writer.version)
            self.tensors |= {f"{k}/{name}": tensor for name, tensor in writer.tensors.items()}
        return {"parts": parts, "weights": list(posterior.weights)}

    def units(self, posterior: Any) -> Description:
        """Describe columns and units, and the posterior in the scaled space."""
        return {"columns": self.columns(posterior), "inner": self.posterior(posterior.inner)}

    def unit_rows(self, posterior: Any) -> Description:
        """Describe the posterior of a function of (x, d)."""
        return {"inner": self.posterior(posterior.inner)}

    def inducing(self, posterior: Any) -> Description:
        """Describe a sparse GP."""
        self.keep({"theta": posterior.theta, "L_mm": posterior.L_mm})
        weights = self.weights(posterior.weights)
        return {
            "row_noise": posterior.row_noise,
            **self.rows("Z", posterior.Z),
            **weights,
            **self.kernel(posterior),
        }

    def of_rows(self, posterior: Any) -> Description:
        """Describe a GP of training rows; no factor is kept."""
        solved, same = not hasattr(posterior, "error_weights"), posterior.X is posterior.S
        self.keep({"theta": posterior.theta, "alpha": posterior.alpha})
        if not solved:
            self.keep({"error_weights": posterior.error_weights})
        inputs = self.rows("X", posterior.X) | ({} if same else self.rows("S", posterior.S))
        noise = getattr(posterior.solver, "noise", None)
        if noise is not None:
            self.keep({"row_noise": noise})
        by_blocks = getattr(posterior.solver, "description", None)
        solver = {} if by_blocks is None else {"by_blocks": by_blocks}
        return {"same": same, "solved": solved, **inputs, **solver, **self.kernel(posterior)}

    def regression(self, posterior: Any) -> Description:
        """Describe regression on features."""
        if posterior.V is not None:
            self.keep({"V": posterior.V})
        flags = {"combined": posterior.V is not None, "outside": posterior.outside is not None}
        unseen = {"unseen": posterior.unseen} if posterior.unseen else {}
        return {**flags, **unseen, **self.features(posterior), **self.weights(posterior.weights)}

    def prior(self, posterior: Any) -> Description:
        """Describe the prior of a kernel."""
        self.keep({"theta": posterior.theta})
        return {**self.kernel(posterior)}

    def keep(self, parts: dict[str, Tensor]) -> None:
        """Add tensors to the file under their names."""
        self.tensors |= {name: part.detach().cpu().clone().contiguous() for name, part in parts.items()}

    def columns(self, posterior: Any) -> Description:
        """Describe how inputs are read: names, units, precision."""
        columns, scale = posterior.columns, posterior.columns.scale
        description = {"names": list(columns.names), "target": columns.target, "d": columns.d}
        if isinstance(columns.X, MixedRows):
            description["texts"] = len(columns.X.texts)
        description |= {"numeric": isinstance(columns.X, Tensor), "dtype": str(columns.y.dtype).removeprefix("torch.")}
        if scale is not None:
            self.keep({"x_mean": scale.x_mean, "x_sd": scale.x_sd})
            description |= {"y_mean": scale.y_mean, "y_sd": scale.y_sd}
            if scale.transform is not None:
                self.version = WITH_TRANSFORM
                description["transform"] = scale.transform.described()
        return {**description, "scaled": scale is not None}

    def rows(self, name: str, X: Any) -> Description:
        """Keep inputs: a tensor, texts, or both."""
        if isinstance(X, MixedRows):
            self.keep({name: X.numbers})
            return {f"{name} columns of text": [list(column) for column in X.texts]}
        if isinstance(X, Tensor):
            self.keep({name: X})
            return {}
        if not all(isinstance(text, str) for text in X):
            raise PosteriorError(f"Inputs that are {described_rows(X)} cannot be saved, unlike numbers and texts.")
        return {f"{name} texts": list(X)}

    def kernel(self, posterior: Any) -> Description:
        """Describe a kernel by its text, or by the feature map that it has learned."""
        kernel, scaled = posterior.kernel, dict[str, Any]()
        if isinstance(kernel, RowScaled):
            kernel, scaled = kernel.base, {"row_scaled": True}
        if isinstance(kernel, LearnedKernel):
            return {"kernel": {"map": _map(kernel.map), "linear": kernel.linear}}
        if kernel.columns is not None:
            scaled["columns"] = {name: list(names) for name, names in kernel.columns._asdict().items()}
        return {"kernel": {"text": kernel.key, "d": kernel.d, **scaled}}

    def weights(self, weights: Any) -> Description:
        """Describe the distribution of weights."""
        if isinstance(weights, PrecisionFactor):
            self.keep({"weights": weights.mean, "L": weights.L})
            return {"weights": "precision", "s2": weights.s2}
        if isinstance(weights, CovarianceRoot):
            self.keep({"weights": weights.mean, "S_root": weights.S})
            return {"weights": "root"}
        self.keep({"weights": weights.mean, "diagonal": weights.diagonal, "direction": weights.direction})
        return {"weights": "diagonal"}

    def features(self, posterior: Any) -> Description:
        """Describe a feature map, which is a choice of basis functions or was learned."""
        features = posterior.features
        if isinstance(features, LearnedFeatures):
            waves = {} if features.waves is None else self.waves(features.waves)
            self.keep({"theta": features.theta})
            return {"features": "learned", "map": _map(features.map), "linear": features.waves is None, **waves}
        if not isinstance(features, ChosenFeatures):
            raise PosteriorError(f"Features of type {type(features).__name__} cannot be saved.")
        self.keep({"theta": features.theta})
        choice = features.choice
        if isinstance(choice, Fourier):
            return {"features": "fourier", **self.waves(choice.waves)}
        if not isinstance(choice, Leading):
            raise PosteriorError(f"Basis functions of type {type(choice).__name__} cannot be saved.")
        self.keep({"index": choice.index, **{f"axis {q}": axis for q, axis in enumerate(choice.grid.axes)}})
        name = "interpolated" if isinstance(choice, Interpolated) else "grid"
        kernel: Any = choice.grid.kernel
        return {"features": name, "kernel": {"text": kernel.key, "d": kernel.d}}

    def waves(self, waves: RandomFourier) -> Description:
        """Keep the frequencies of random Fourier features."""
        self.keep({"Omega": waves.Omega, "phases": waves.c})
        return {"waves": waves.kind}


def _map(map: Any) -> Description:
    """Describe a learned feature map; its parameters are in theta."""
    if isinstance(map, Scaled):
        return {"d": map.d, "constant": bool(map.constant)}
    if isinstance(map, Network):
        activation = next(name for name, function in ACTIVATIONS.items() if function is map.activation)
        return {"sizes": list(map.sizes), "activation": activation}
    raise PosteriorError(
        "A torch module that was given in Python cannot be saved, because reading it would run code; save its "
        "state_dict yourself, or use layers of gpexplorer."
    )
