"""Posteriors as files: tensors in the safetensors format, and a description in JSON that says what they are.

    posterior.save("model.safetensors")              posterior = gpx.load_posterior("model.safetensors")

A file holds what predictions need and nothing else. With m inducing inputs that is about m^2 + m d numbers, with p
features p^2 (or p r), and for methods that predict from training rows the rows themselves and one coefficient each;
their Cholesky factor is computed again. Nothing in a file can be run: it holds numbers, names and texts, and every one
of them is checked.

A posterior is also a module of torch, for `torch.export` and servers that run exported graphs:

    forward(X [t, d], in the units of the file) -> mean [t], variance [t]

A module runs the code of the posterior itself, with its tensors as buffers. While `torch.export` records it, kernels
compute distances from differences of inputs, one input after another, so that no decision depends on the data.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import GPExplorerError, PosteriorError, not_written, quoted
from .parts import ByBlocks, Parts, check_tensors, read_posterior, write_posterior

FORMAT = "gpexplorer posterior"
VERSIONS = ("1", "2", "3", "4", "5", "6")  # transforms need 2, readers 3, means 4, logs 5, widened variances 6
ENTRIES = ("format", "version", "posterior")  # of the header; files since the digest was added have it beside them
WRITERS = "posterior.save or `run --model`"
UNTRUSTED = (GPExplorerError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def save_posterior(posterior: Any, path: str | os.PathLike[str]) -> int:
    """Write a posterior to a file, and return the size of the file in bytes.

    Parameters
    ----------
    path : str or path
        Such as "model.safetensors". A file that exists is replaced at once or not at all.

    Raises
    ------
    PosteriorError
        If the posterior contains something that a file cannot hold, such as a torch module given in Python, or the
        path is not one of a file in a folder that exists, or cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    if not isinstance(path, (str, os.PathLike)) or Path(path).is_dir() or not Path(path).parent.is_dir():
        raise PosteriorError(
            f"A model cannot be saved as {quoted(path)}: give a file in a folder that exists, such as "
            '"model.safetensors".'
        )
    parts = Parts()
    write_posterior(parts, posterior)
    header = {"format": FORMAT, "version": str(parts.version), "posterior": json.dumps(parts.text)}
    header["digest"] = digest_of(header, parts.tensors)
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # narrowed by the umask
        mode = temporary.stat().st_mode & 0o777
        save_file(parts.tensors, temporary, header)
        temporary.chmod(mode)  # safetensors makes files that only their owner can read
        os.replace(temporary, target)
    except (SafetensorError, OSError) as error:
        way_out = not_written(_of_system(error), "choose another file")
        raise PosteriorError(f"A model cannot be saved as {target} {way_out}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return target.stat().st_size


def _of_system(error: Exception) -> OSError:
    """An error of writing as one of the system; safetensors gives the number of one in its message only."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error ([0-9]+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))


def load_posterior(path: str | os.PathLike[str], device: str = "cpu", by_blocks: ByBlocks | None = None) -> Any:
    """Read a posterior from a file that `Posterior.save` wrote.

    Parameters
    ----------
    device : str, default "cpu"
        Where it computes.
    by_blocks : callable, optional
        Makes the posterior of an exact GP whose matrix is never formed; `gpexplorer.load_posterior` gives it. Without
        it, variances come from a Cholesky factor of all rows.

    Returns
    -------
    Posterior
        As `gpexplorer.load_posterior`, which says what is raised.
    """
    from safetensors import SafetensorError, safe_open

    if not isinstance(path, (str, os.PathLike)) or not Path(path).is_file():
        named = quoted(str(path) if isinstance(path, os.PathLike) else path)
        if isinstance(path, (str, os.PathLike)) and Path(path).is_dir():
            raise PosteriorError(f"{named} is a folder: give the path of a model in it that {WRITERS} wrote.")
        raise PosteriorError(f"There is no file {named}: give the path of a model that {WRITERS} wrote.")
    try:
        with safe_open(str(path), "pt", device=device) as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, OSError, RuntimeError) as error:
        if device != "cpu":
            raise PosteriorError(f'{path} cannot be read on device {quoted(device)} ({error}): give "cpu".') from None
        raise PosteriorError(
            f"{path} cannot be read as a safetensors file ({error}): give the path of a model that {WRITERS} wrote."
        ) from None
    if header.get("format") != FORMAT:
        raise PosteriorError(f"{path} holds tensors, but no posterior of gpexplorer; write one with posterior.save.")
    if header.get("version") not in VERSIONS:
        raise PosteriorError(
            f"{path} has version {str(header.get('version'))[:20]!r} of the format, which this gpexplorer cannot read; "
            "install a newer one, or save the posterior again."
        )
    if set(header) - {*ENTRIES, "digest"} or header.get("digest") not in (None, digest_of(header, tensors)):
        raise PosteriorError(
            f"{path} was changed after it was written: its content does not have the digest that it names. Copy it "
            "again from where it came from, or save the posterior again."
        )
    try:
        check_tensors(tensors)
        posterior = read_posterior(Parts(json.loads(header.get("posterior", "")), tensors, by_blocks=by_blocks))
        with torch.no_grad():
            posterior.check()
    except PosteriorError as error:
        raise PosteriorError(f"{path} cannot be read as a posterior: {error}") from None
    except UNTRUSTED as error:
        raise PosteriorError(f"{path} contradicts itself ({error}); save the posterior again.") from None
    return posterior


def digest_of(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """BLAKE2b of all that a file holds, its own digest excepted."""
    digest = hashlib.blake2b(json.dumps([header.get(name) for name in ENTRIES]).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


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
        self.posterior = _prepared(posterior)
        self.names: dict[int, str] = {}  # of buffers, by the identity of their tensors
        self.places = self._register(self.posterior, ())

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [t] and variance [t] at inputs [t, d]."""
        posterior = _with_buffers(self.posterior, self.places, self)
        marginals = posterior.block_marginals(X.to(posterior.like.dtype))
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
            f"This {type(posterior).__name__} cannot be a torch module: its variances are not those of one factor."
        )
    kernel: Any = getattr(posterior, "kernel", None)
    if getattr(kernel, "inputs", "real") != "real":
        raise PosteriorError(f"Kernel {kernel.key!r} cannot be part of a torch module: its inputs are not numbers.")
    posterior.moments(posterior.examples())  # a Cholesky factor, or the functions of a grid
    return posterior
