"""Images of an articulated figure by three cameras, in place of HumanEva, whose images may not be distributed.

A pose consists of an activity (walking, waving, boxing), a phase and a direction, and every joint angle gets random
noise. The limbs are drawn as soft capsules, 64 x 64 pixels per camera. Each image becomes a histogram of oriented
gradients that sums to one. The target is the height of the left wrist in metres. The data suit `histogram-3`, the
kernel of three histogram intersections.

Body axes: x points to the right, y up, z forward; the figure turns about y. The cameras stand around it, a third of a
turn apart.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError
from ...problem import Dataset, Scale
from ..quoting import quote
from ..splits import Split, key_of
from .generators import LARGEST_SEED, check_whole, completed

TRAIN, TEST, CAMERAS = 4819, 4811, 3  # rows as in Cao et al. (2013), section 4.1
PIXELS, FOCUS, DISTANCE = 64, 3.6, 4.0  # image side; half-widths of the image per metre at 1 m; metres
DIMENSION = CAMERAS * 324  # bins per camera: 9 orientations, 2 x 2 cells in each of 3 x 3 blocks
ANGLE_NOISE = 0.12  # radians, standard deviation of each joint
TORSO, SHOULDER, HIP, UPPER_ARM, FOREARM, THIGH, SHANK, HEAD = 0.55, 0.2, 0.12, 0.3, 0.27, 0.44, 0.43, 0.25  # metres
BATCH = 64  # figures drawn together
SIDES = {"left": -1.0, "right": 1.0}
JOINTS = (
    *("pelvis", "neck", "head"),
    *(f"{side} {part}" for side in SIDES for part in ("shoulder", "elbow", "wrist", "knee", "ankle")),
)
LIMBS = (  # both ends, radius in metres, shade
    *(("pelvis", "neck", 0.13, 0.7), ("neck", "head", 0.1, 1.0)),
    *((f"{side} shoulder", f"{side} elbow", 0.055, 0.9) for side in SIDES),
    *((f"{side} elbow", f"{side} wrist", 0.045, 1.0) for side in SIDES),
    *(("pelvis", f"{side} knee", 0.08, 0.6) for side in SIDES),
    *((f"{side} knee", f"{side} ankle", 0.06, 0.5) for side in SIDES),
)


def poses(train: int = TRAIN, test: int = TEST, seed: int = 0) -> Split:
    """Draw training and test poses: histograms of three cameras [n, 972], and the height of the left wrist.

    Parameters
    ----------
    train, test : int
        Numbers of rows.
    seed : int
        Seed of the poses.

    Returns
    -------
    Split
        The target is standardised. The histograms are not, because their kernels need nonnegative numbers.

    Raises
    ------
    DataError
        If there are too few rows, or if scikit-image is not installed.

    Notes
    -----
    About 2 ms per image, nearly all of it in scikit-image.
    """
    if train < 2 or test < 1:
        raise DataError(f"poses: {train} training and {test:,} test rows are too few; at least 2 and 1 are needed.")
    hog = _hog()
    rng = torch.Generator().manual_seed(seed)
    joints = skeleton(angles(train + test, rng))  # [n, 13, 3]
    X = torch.cat([_histograms(view(joints, camera), hog) for camera in range(CAMERAS)], 1)
    y = joints[:, JOINTS.index("left wrist"), 1]
    mean, sd = float(y[:train].mean()), float(y[:train].std(correction=0))
    d = X.shape[1]
    scale = Scale(X.new_zeros(d), X.new_ones(d), mean, sd)
    names = tuple(f"camera {1 + q // (d // CAMERAS)}, bin {1 + q % (d // CAMERAS)}" for q in range(d))
    data = Dataset(X, (y - mean) / sd, names, "left wrist height [m]", scale)
    notes = ("Made by a generator: an articulated figure, three cameras, histograms of oriented gradients.",)
    key = key_of("poses", [train, test, seed], 0)
    return Split(data.rows(range(train)), data.rows(range(train, train + test)), "poses", notes, f"{key}/scaled")


NOTE = (
    "An articulated figure walks, waves or boxes in front of three cameras; X contains one histogram per camera, "
    "y is the height of the left wrist in metres. Options: train, test, seed. The kernel histogram-3 suits these data."
)
MAX_ROWS = 20_000  # training rows, and likewise test rows
_cached = lru_cache(maxsize=2)(poses)


def named(options: Mapping[str, Any], how: object) -> Split:
    """Return poses for the options train, test and seed, drawn once per process (a minute at full size)."""
    defaults = {"train": TRAIN, "test": TEST, "seed": 0}
    values = completed("poses", options, defaults)
    if how != 0 or isinstance(how, bool):
        raise DataError(f"poses has one split, split=0; there is no split {quote(how)}.")
    for key, value in values.items():
        check_whole("poses", key, value, 0, LARGEST_SEED if key == "seed" else MAX_ROWS)
    return _cached(**values)


def angles(n: int, rng: torch.Generator) -> dict[str, Tensor]:
    """Draw n independent poses: angles [n] in radians by the name of the joint."""
    kind = torch.randint(3, (n,), generator=rng)
    phase, turn = (2.0 * math.pi * torch.rand(2, n, generator=rng, dtype=torch.float64)).unbind()
    noise = ANGLE_NOISE * torch.randn(11, n, generator=rng, dtype=torch.float64)
    s, c = phase.sin(), phase.cos()
    zero = torch.zeros_like(s)

    def by_kind(walk: Tensor, wave: Tensor, box: Tensor) -> Tensor:
        return torch.stack([walk, wave, box]).gather(0, kind[None])[0]

    poses_by_name = {
        "left arm": by_kind(-0.5 * s, 2.3 + 0.4 * s, 1.2 + 0.3 * s),
        "right arm": by_kind(0.5 * s, 0.1 * s, 1.2 - 0.3 * s),
        "left spread": by_kind(zero + 0.1, 0.4 + 0.4 * c, zero + 0.2),
        "right spread": zero + 0.1,
        "left elbow": by_kind(0.4 - 0.2 * s, 0.6 + 0.5 * c, 1.1 + 0.9 * c),
        "right elbow": by_kind(0.4 + 0.2 * s, zero + 0.2, 1.1 - 0.9 * c),
        "left leg": by_kind(0.5 * s, zero, zero + 0.2),
        "right leg": by_kind(-0.5 * s, zero, zero - 0.2),
        "left knee": by_kind(0.4 - 0.4 * c, zero, zero + 0.1),
        "right knee": by_kind(0.4 + 0.4 * c, zero, zero + 0.1),
        "lean": by_kind(zero + 0.05, zero, zero + 0.1),
    }
    return {name: value + noise[i] for i, (name, value) in enumerate(poses_by_name.items())} | {"turn": turn}


def skeleton(pose: dict[str, Tensor]) -> Tensor:
    """Return the positions of the joints [n, 13, 3] in metres, in the order of JOINTS."""
    zero = torch.zeros_like(pose["lean"])
    up = torch.stack([zero, pose["lean"].cos(), pose["lean"].sin()], 1)  # [n, 3]
    pelvis = torch.stack([zero, zero + THIGH + SHANK, zero], 1)
    neck = pelvis + TORSO * up
    joints = [pelvis, neck, neck + HEAD * up]
    for side, sign in SIDES.items():
        swing, spread, leg = (pose[f"{side} {name}"] for name in ("arm", "spread", "leg"))
        # elbows and knees bend in one direction only
        elbow, knee = (pose[f"{side} {name}"].clamp_min(0.0) for name in ("elbow", "knee"))
        joints.append(neck + neck.new_tensor([sign * SHOULDER, -0.03, 0.0]))
        joints.append(joints[-1] + UPPER_ARM * _reach(swing, spread, sign))
        joints.append(joints[-1] + FOREARM * _reach(swing + elbow, 0.5 * spread, sign))
        joints.append(pelvis + neck.new_tensor([sign * HIP, 0.0, 0.0]) + THIGH * _reach(leg, zero, sign))
        joints.append(joints[-1] + SHANK * _reach(leg - knee, zero, sign))
    return _turned(torch.stack(joints, 1), pose["turn"])


def _reach(forward: Tensor, spread: Tensor, sign: float) -> Tensor:
    """The direction [n, 3] of a hanging limb after it is swung forward and spread to its side."""
    return torch.stack([sign * spread.sin(), -spread.cos() * forward.cos(), spread.cos() * forward.sin()], 1)


def _turned(points: Tensor, turn: Tensor) -> Tensor:
    """Points [n, k, 3] after a turn about the vertical axis."""
    s, c = turn.sin()[:, None], turn.cos()[:, None]
    x, y, z = points.unbind(2)
    return torch.stack([c * x + s * z, y, c * z - s * x], 2)


def view(joints: Tensor, camera: int) -> Tensor:
    """Project joints onto the image of one camera: [n, 13, 2], from -1 to 1, y downward."""
    turn = torch.full((len(joints),), 2.0 * math.pi * camera / CAMERAS, dtype=joints.dtype)
    x, y, z = _turned(joints, turn).unbind(2)
    depth = DISTANCE - z
    return torch.stack([FOCUS * x / depth, -FOCUS * (y - 1.0) / depth], 2)


def draw(flat: Tensor) -> Tensor:
    """Draw images [n, 64, 64] in 0..1: each limb is a soft capsule of its own shade, the brightest one in front."""
    side = torch.linspace(-1.0, 1.0, PIXELS, dtype=flat.dtype)
    grid = torch.stack(torch.meshgrid(side, side, indexing="xy"), 2).reshape(-1, 2)  # [pixels, 2] as (x, y)
    begin, end = (flat[:, [JOINTS.index(entry[k]) for entry in LIMBS]] for k in (0, 1))  # [n, 10, 2]
    limb = end - begin  # [n, 10, 2]
    offset = grid - begin[:, :, None]  # [n, 10, pixels, 2]
    length2 = limb.square().sum(2).clamp_min(1e-9)[:, :, None]
    share = (offset * limb[:, :, None]).sum(3) / length2  # of the way along the limb
    distance = (offset - share.clamp(0.0, 1.0)[..., None] * limb[:, :, None]).square().sum(3).sqrt()
    radius, shade = (flat.new_tensor([entry[k] for entry in LIMBS])[:, None] for k in (2, 3))
    ink = shade * torch.sigmoid((FOCUS / DISTANCE * radius - distance) * PIXELS)
    return ink.amax(1).reshape(-1, PIXELS, PIXELS)


def _histograms(flat: Tensor, hog: Any) -> Tensor:
    """Histograms of oriented gradients [n, 324], each of which sums to one."""
    histograms = []
    for part in flat.float().split(BATCH):
        for image in draw(part).numpy():
            histograms.append(
                hog(image, orientations=9, pixels_per_cell=(16, 16), cells_per_block=(2, 2), block_norm="L1")
            )
    rows = torch.from_numpy(np.asarray(histograms, dtype=np.float64))
    return rows / rows.sum(1, keepdim=True).clamp_min(1e-12)


def _hog() -> Any:
    try:
        return importlib.import_module("skimage.feature").hog
    except ImportError:
        raise DataError(
            'Poses need scikit-image for histograms of gradients: pip install "gpexplorer[poses]".'
        ) from None
