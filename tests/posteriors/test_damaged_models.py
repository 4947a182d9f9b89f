"""A saved model that was changed is a sentence, and one whose numbers contradict each other is not loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import PosteriorError
from gpexplorer.posteriors import CovarianceRoot, InducingPosterior, load_posterior
from model_files import parts_of, rewritten
from steps_of import small_run


def test_a_changed_byte_is_a_sentence_that_names_the_file_and_the_way_out(tmp_path: Path):
    path = tmp_path / "model"
    small_run("cholqr", d=2, steps=3).posterior().save(path)
    whole = path.read_bytes()
    assert b'"digest"' in whole[: whole.index(b"]}}")]

    draw = np.random.default_rng(0)
    for place in [*draw.integers(0, len(whole), 60), *draw.integers(8, whole.index(b"]}}"), 40)]:
        changed_bytes = bytearray(whole)
        changed_bytes[place] ^= 1 << int(draw.integers(8))
        path.write_bytes(changed_bytes)
        with pytest.raises(PosteriorError, match=rf"(?s){path}.*(save|saved|newer|write one|safetensors file)"):
            load_posterior(path)


def test_a_file_from_before_there_were_digests_is_read_and_a_digest_of_other_numbers_is_not(tmp_path: Path):
    small_run("cholqr", d=2, steps=3).posterior().save(tmp_path / "good")
    tensors, description = parts_of(tmp_path / "good")
    load_posterior(rewritten(tmp_path / "older", tensors, description))

    with pytest.raises(PosteriorError, match="was changed after it was written"):
        load_posterior(rewritten(tmp_path / "bad", tensors, description, digest="0" * 32))


def test_a_negative_variance_and_a_factor_that_is_none_are_refused(tmp_path: Path):
    smaller = torch.tensor([1.0] * 5 + [1e-4])
    for key, name, tensor, says in (
        ("svgp", "L_mm", lambda L: 1.05 * L, "not the Cholesky factor"),
        (
            "svgp",
            "L_mm",
            lambda L: L.diagonal_scatter(L.diagonal() * smaller),
            "factor|negative",
        ),
        ("svgp", "S_root", lambda S: 1e80 * S, "not a finite number"),
        ("grief", "V", lambda V: 1.5 * V, "not orthonormal"),
        ("ski", "axis 1", lambda U: U.flip(0), "do not ascend"),
        ("ml", "alpha", lambda alpha: 1e100 * alpha, "not a finite number|above"),
    ):
        small_run(key, d=2, steps=3).posterior(of="y").save(tmp_path / "a")
        tensors, description = parts_of(tmp_path / "a")
        with pytest.raises(PosteriorError, match=says):
            load_posterior(rewritten(tmp_path / "bad", {**tensors, name: tensor(tensors[name])}, description))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda values, vectors: (values, 2.0 * vectors), "not orthonormal"),
        (lambda values, vectors: (100.0 * values, vectors), "not those of its kernel"),
        (lambda values, vectors: (values, vectors.flip(1)), "not those of its kernel"),
        (lambda values, vectors: (values[:1], vectors[:, :1]), "."),  # functions of the file have larger indices
    ],
)
def test_eigenvectors_that_contradict_the_rest_of_a_file_are_refused(change: Any, said: str, tmp_path: Path):
    path = tmp_path / "model.safetensors"
    small_run("grief", d=2, steps=4).posterior(of="y").save(path)
    tensors, text = parts_of(path)
    prefix = next(name for name in tensors if name.endswith("eigenvalues 0 0")).removesuffix("eigenvalues 0 0")
    names = [f"{prefix}eigen{part} 0 0" for part in ("values", "vectors")]
    changed_pair = change(*(tensors[name] for name in names))
    rewritten(path, tensors | {name: part.contiguous() for name, part in zip(names, changed_pair, strict=True)}, text)

    with pytest.raises(PosteriorError, match=said):
        load_posterior(path)


def test_jitter_that_is_large_beside_the_function_is_read_again(tmp_path: Path):
    """SVGP adds a share of the noise variance, which is a large part of a small function."""
    kernel, Z = kernels.make("se", d=1), torch.linspace(0.0, 3.0, 6, dtype=torch.float64)[:, None]
    theta = torch.tensor([-3.0, 0.0, 1.0], dtype=torch.float64)
    K = kernel(theta, Z, Z) + 1e-3 * torch.eye(6, dtype=torch.float64)
    L, mean, root = torch.linalg.cholesky(K), torch.ones(6, dtype=torch.float64), torch.eye(6, dtype=torch.float64)
    posterior = InducingPosterior(kernel, theta, Z, L, CovarianceRoot(mean, root))
    posterior.save(tmp_path / "model")

    assert torch.equal(load_posterior(tmp_path / "model")(Z).var, posterior(Z).var)

    other = InducingPosterior(kernel, theta, Z, L.clone(), CovarianceRoot(mean, root))
    other.L_mm[3, 1] += 0.02  # what is no jitter
    other.save(tmp_path / "other")
    with pytest.raises(PosteriorError, match="L_mm is not the Cholesky factor"):
        load_posterior(tmp_path / "other")
