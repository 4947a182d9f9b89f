"""Posteriors as files: tensors in the safetensors format, and a description in JSON that says what they are.

    posterior.save("model.safetensors")              posterior = gpx.load_posterior("model.safetensors")

A file holds what predictions need and nothing else. With m inducing inputs that is about m^2 + m d numbers, with p
features p^2 (or p r), and for methods that predict from training rows the rows themselves and one coefficient each;
their Cholesky factor is computed again. Nothing in a file can be run: it holds numbers, names and texts, and every one
of them is checked.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import GPExplorerError, PosteriorError
from .parts import ByBlocks, Parts, check_tensors, read_posterior, write_posterior

FORMAT, VERSIONS = (
    "gpexplorer posterior",
    ("1", "2", "3", "4", "5", "6"),
)  # transforms need version 2, readers 3, means 4, logs 5, widened variances 6
ENTRIES = ("format", "version", "posterior")  # of the header; files since the digest was added have it beside them
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
        If the posterior contains something that a file cannot hold, such as a torch module given in Python.
    """
    from safetensors.torch import save_file

    parts = Parts()
    write_posterior(parts, posterior)
    header = {"format": FORMAT, "version": str(parts.version), "posterior": json.dumps(parts.text)}
    header["digest"] = digest_of(header, parts.tensors)
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # the umask narrows it, as for any file
    mode = temporary.stat().st_mode & 0o777
    try:
        save_file(parts.tensors, temporary, header)
        temporary.chmod(mode)  # safetensors makes files that only their owner can read
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return target.stat().st_size


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
        With the units, the columns and the noise of the model that was saved.

    Raises
    ------
    PosteriorError
        If the file is not such a file, comes from a later version, or contradicts itself.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt", device=device) as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, OSError) as error:
        raise PosteriorError(f"{path} cannot be read as a safetensors file: {error}.") from None
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
