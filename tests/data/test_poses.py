"""Poses: limbs of constant length, cameras that agree, histograms that sum to one, a wrist that can be learned."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from gpexplorer import Spec, data
from gpexplorer.data.sets.poses import CAMERAS, FOREARM, JOINTS, SHANK, UPPER_ARM, angles, draw, poses, skeleton, view
from gpexplorer.errors import DataError


def joints(n: int = 40, seed: int = 1) -> dict[str, torch.Tensor]:
    body = skeleton(angles(n, torch.Generator().manual_seed(seed)))
    return {name: body[:, i] for i, name in enumerate(JOINTS)}


def test_limbs_keep_their_length_and_arms_their_side() -> None:
    at = joints()
    for side in ("left", "right"):
        for a, b, length in (("shoulder", "elbow", UPPER_ARM), ("elbow", "wrist", FOREARM), ("knee", "ankle", SHANK)):
            lengths = (at[f"{side} {a}"] - at[f"{side} {b}"]).norm(dim=1)
            assert torch.allclose(lengths, torch.full_like(lengths, length))
    heights = [float(at[name][:, 1].mean()) for name in ("left ankle", "left knee", "pelvis", "neck", "head")]
    assert heights == sorted(heights)
    assert float(torch.stack(list(at.values()))[..., 1].min()) > -0.05


def test_cameras_stand_a_third_of_a_turn_apart() -> None:
    pose = angles(30, torch.Generator().manual_seed(2))
    turned = skeleton(pose | {"turn": pose["turn"] + 2 * math.pi / CAMERAS})
    assert torch.allclose(view(turned, 0), view(skeleton(pose), 1))
    assert torch.allclose(view(turned, 2), view(skeleton(pose), 0))
    assert float(view(skeleton(pose), 0).abs().max()) < 1.0  # nobody leaves the image


def test_a_limb_is_drawn_where_its_joints_are() -> None:
    flat = view(skeleton(angles(20, torch.Generator().manual_seed(3))), 0)
    images = draw(flat)
    assert images.shape == (20, 64, 64)
    assert float(images.min()) >= 0.0
    assert float(images.max()) <= 1.0
    column, row = ((flat[:, JOINTS.index("left wrist")] + 1.0) / 2.0 * 63).round().long().unbind(1)
    assert float(images[torch.arange(20), row, column].min()) > 0.5
    assert float(images[:, 0, 0].max()) < 0.01


def test_rows_are_histograms_and_the_target_is_the_wrists_height() -> None:
    split = poses(train=30, test=12, seed=4)
    repeated = poses(train=30, test=12, seed=4)
    assert torch.equal(split.train.X, repeated.train.X)
    assert split.key == repeated.key != poses(train=30, test=11, seed=4).key
    assert split.train.X.shape == (30, 972)
    X = torch.cat([split.train.X, split.test.X])
    assert torch.allclose(X.reshape(42, CAMERAS, -1).sum(2), torch.ones(42, CAMERAS, dtype=X.dtype))
    scale = split.train.scale
    y = torch.cat([split.train.y, split.test.y]) * scale.y_sd + scale.y_mean
    assert torch.allclose(y, joints(42, seed=4)["left wrist"][:, 1])
    assert float(split.train.y.std(correction=0)) == pytest.approx(1.0)
    assert split.scaled() is split


def test_the_wrist_is_learned_with_a_variance_for_each_camera() -> None:
    run = Spec("cholqr", {"num_inducing": 30, "evaluations": 8, "max_epochs": 2}, kernel="histogram-3").open(
        data=poses(train=150, test=60)
    )
    run.finish(steps=60)
    assert run.problem.kernel.names == ("sd camera 1", "sd camera 2", "sd camera 3", "noise")
    assert run.scores()["smse"] < 0.5
    assert run.scores()["rmse"] < 0.3  # metres


def test_poses_are_loaded_by_name_like_any_generator() -> None:
    assert data.available().loc["poses", ["n", "d"]].tolist() == [9630, 972]
    assert data.is_named("poses")
    assert data.fetch("poses") == ()
    split = data.load({"name": "poses", "train": 30, "test": 12, "seed": 4})
    assert split.key == poses(train=30, test=12, seed=4).key
    assert split.train.d == 972
    run = Spec("random", {"num_inducing": 5, "learn": False}, data={"name": "poses", "train": 30, "test": 12},
               kernel="histogram-3").open()  # fmt: skip
    run.finish(steps=3)
    assert float(run.problem.train.X.min()) >= 0.0


@pytest.mark.parametrize(
    ("options", "split", "sentence"),
    [
        ({"n": 9}, 0, "no option"),
        ({"train": 10**6}, 0, "0 to 20,000"),
        ({"test": 2.5}, 0, "whole number"),
        ({}, 1, "one split"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(options: dict[str, object], split: int, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        data.load({"name": "poses", **options}, split=split)


def test_without_scikit_image_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage.feature", None)
    with pytest.raises(DataError, match=r'pip install "gpexplorer\[poses\]"'):
        poses(train=3, test=1)


def test_no_test_rows_are_refused() -> None:
    with pytest.raises(DataError, match="0 test rows"):
        poses(train=3, test=0)
