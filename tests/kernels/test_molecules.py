"""Strings and molecules: mismatch and fourteen fingerprints by brute force; SMILES in, a fitted model out."""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter

import pytest
import torch

from gpexplorer import Spec, kernels
from gpexplorer.errors import KernelError
from gpexplorer.kernels import molecules
from gpexplorer.kernels.strings import ALPHABET
from gpexplorer.problem import Dataset

SMILES = ["CCO", "CCN", "c1ccccc1", "c1ccccc1O", "CC(=O)Oc1ccccc1C(=O)O", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "C", "CCCCCC"]
ANILINE, THETA = "c1ccccc1N", torch.tensor([*torch.linspace(-1, 0.5, 14).tolist(), -1.0], dtype=torch.float64)


def neighbours(text: str) -> Counter[str]:
    """Every string of three letters out of twenty, and how many substrings of `text` are at most one letter from it."""
    letters = [chr(ord("a") + i) for i in range(ALPHABET)]
    parts, result = [text[i : i + 3] for i in range(len(text) - 2)], Counter()
    for word in map("".join, itertools.product(letters, repeat=3)):
        result[word] = sum(sum(a != b for a, b in zip(word, part, strict=True)) <= 1 for part in parts)
    return result


def test_mismatch_counts_every_neighbour() -> None:
    texts, theta = ["abcab", "abdab", "ttt", "aab", "abcdefgh"], torch.tensor([0.2, -1.0], dtype=torch.float64)
    kernel = kernels.make("mismatch", 1)
    K, phi = kernel(theta, texts, texts), [neighbours(text) for text in texts]
    lengths = [math.sqrt(sum(c * c for c in counts.values())) for counts in phi]
    for i, j in itertools.product(range(len(texts)), repeat=2):
        inner = sum(count * phi[j][word] for word, count in phi[i].items())
        assert float(K[i, j]) == pytest.approx(math.exp(0.4) * inner / (lengths[i] * lengths[j]), rel=1e-12)
    assert torch.allclose(kernel.diag(theta, texts), K.diagonal())
    assert float(K[0, 1]) > float(kernels.make("spectrum", 1)(theta, texts, texts)[0, 1])
    assert kernel(theta, ["ab"], texts).tolist() == [[0.0] * 5]


def minmax(a: str, b: str, v: int) -> float:
    """Minima over maxima of RDKit's own counts."""
    read, counters = molecules._rdkit()
    x, z = (Counter(counters[v](read(text)).GetNonzeroElements()) for text in (a, b))
    either = sum((x | z).values())
    return sum((x & z).values()) / either if either else 1.0


def test_fourteen_kinds_are_compared_by_minima_over_maxima() -> None:
    kernel = kernels.make("molecules", 1)
    others = [ANILINE, *SMILES[4:6]]
    S = kernel.similarities(SMILES, others, THETA)
    assert S.shape == (14, len(SMILES), 3)
    for v, i in itertools.product(range(14), range(len(SMILES))):
        assert float(S[v, i, 0]) == pytest.approx(minmax(SMILES[i], ANILINE, v), rel=1e-12)
    assert torch.equal(kernel.similarities(others, SMILES, THETA), S.transpose(1, 2))
    sildenafil, amide = "CCCc1nn(C)c2c1nc([nH]c2=O)-c1cc(ccc1OCC)S(=O)(=O)N1CCN(C)CC1", "Cc1ccc(NC(=O)c2ccncc2)cc1Cl"
    assert len(set(kernel.similarities([sildenafil], [amide], THETA).flatten().tolist())) == 14


def test_molecules_are_a_weighted_sum_with_its_own_gradient() -> None:
    kernel = kernels.make("molecules", 1)
    assert len(kernel.names) == 15
    K = kernel(THETA, SMILES, SMILES)
    by_hand = sum(math.exp(2 * float(THETA[v])) * minmax(SMILES[3], SMILES[4], v) for v in range(14))
    assert float(K[3, 4]) == pytest.approx(by_hand, rel=1e-12)
    assert torch.allclose(kernel.diag(THETA, SMILES), K.diagonal())
    assert float(torch.linalg.eigvalsh(K)[0]) > -1e-10

    G = torch.randn(8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    at = THETA.clone().requires_grad_(True)
    ((kernel(at, SMILES, SMILES[:3]) * G).sum() + kernel.diag(at, SMILES) @ G[:, 0]).backward()
    result = kernel.theta_gradient(THETA, SMILES, SMILES[:3], G) + kernel.theta_gradient_diag(THETA, SMILES, G[:, 0])
    assert torch.allclose(result, at.grad, rtol=1e-12)


def test_new_molecules_do_not_change_earlier_covariances_and_the_cache_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = kernels.make("molecules", 1)
    before = kernel(THETA, SMILES[:3], SMILES[:2]).clone()
    kernel(THETA, SMILES[4:], [ANILINE, *SMILES])
    assert torch.equal(kernel(THETA, SMILES[:3], SMILES[:2]), before)
    assert len(kernel._cache) == 2
    monkeypatch.setattr("gpexplorer.kernels.molecules.CACHE_BYTES", 1)
    kernel(THETA, SMILES[:1], SMILES[:1])
    assert len(kernel._cache) == 1


def test_texts_that_are_not_molecules_are_refused() -> None:
    kernel = kernels.make("molecules", 1)
    with pytest.raises(KernelError, match=r"cannot read the molecule 'C1CC'.*such as CCO"):
        kernel.start(Dataset(["CCO", "C1CC"], torch.zeros(2)))
    with pytest.raises(KernelError, match="row 1 is a int"):
        kernel.start(Dataset(["CCO", 3], torch.zeros(2)))


def test_without_rdkit_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    molecules._rdkit.cache_clear()
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(KernelError, match=r'pip install "gpexplorer\[molecules\]".*spectrum and mismatch'):
        kernels.make("molecules", 1).start(Dataset(SMILES, torch.zeros(8)))


@pytest.mark.parametrize("kernel", ["molecules", "mismatch"])
def test_a_column_of_smiles_is_learned_from(kernel: str) -> None:
    chains = ["C" * a + end + "C" * b for a in range(1, 7) for b in range(5) for end in ("O", "N", "C(=O)")]
    y = torch.tensor([0.8 * len(text) - 2.0 * text.count("O") for text in chains], dtype=torch.float64)
    spec = Spec("cholqr", {"num_inducing": 15, "max_epochs": 2, "evaluations": 6}, data="molecules", kernel=kernel)
    run = spec.open(data=(chains, y))
    run.finish(steps=40)
    assert run.scores()["smse"] < 0.3
    assert run.problem.theta.shape == (15 if kernel == "molecules" else 2,)


def test_histograms_of_three_cameras_have_a_variance_each() -> None:
    rng = torch.Generator().manual_seed(2)
    X = torch.rand(20, 12, generator=rng, dtype=torch.float64)
    kernel, theta = kernels.make("histogram-3", 12), torch.tensor([0.1, -0.4, 0.3, -1.0], dtype=torch.float64)
    parts = [
        kernels.make("histogram", 4)(theta[[c, 3]], X[:, 4 * c : 4 * c + 4], X[:7, 4 * c : 4 * c + 4]) for c in range(3)
    ]
    assert torch.allclose(kernel(theta, X, X[:7]), sum(parts))
    assert torch.allclose(kernel.diag(theta, X), kernel(theta, X, X).diagonal())
    with pytest.raises(KernelError, match="3 equal blocks of columns, but X has 11"):
        kernels.make("histogram-3", 11).start(Dataset(X[:, :11], X[:, 0]))
    with pytest.raises(KernelError, match="do not standardise"):
        kernel.start(Dataset(X - 1.0, X[:, 0]))


@pytest.mark.parametrize("kernel", ["tanimoto", "minmax", "histogram", "tanimoto + minmax"])
def test_counts_keep_their_units_and_the_target_is_scaled(kernel: str) -> None:
    counts = torch.randint(0, 5, (40, 6), generator=torch.Generator().manual_seed(3)).double()
    y = 100.0 + 7.0 * counts[:, 0] + counts[:, 1] * counts[:, 2]
    run = Spec("cholqr", {"num_inducing": 10, "learn": False}, data="counts", kernel=kernel).open(data=(counts, y))
    train = run.problem.train
    assert set(train.X.unique().tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0}
    assert float(train.y.mean()) == pytest.approx(0.0, abs=1e-12)
    assert torch.equal(train.scale.x_sd, torch.ones(6, dtype=torch.float64))
    run.finish(steps=15)
    assert run.scores()["smse"] < 0.9

    numbers = Spec("cholqr", {"num_inducing": 10, "learn": False}, data="counts", kernel="se").open(data=(counts, y))
    assert float(numbers.problem.train.X.mean(0).abs().max()) < 1e-12


def test_molecules_that_are_new_in_some_kinds_of_fingerprints_only_are_compared() -> None:
    kernel, theta = kernels.make("molecules"), torch.zeros(15, dtype=torch.float64)
    known, isomer = ["CCCC(C)C", "CCO"], ["CCC(C)CC"]  # its atoms are known, and their surroundings are not
    kernel(theta, known, known)
    assert torch.equal(kernel(theta, known, isomer), kernels.make("molecules")(theta, known, isomer))
