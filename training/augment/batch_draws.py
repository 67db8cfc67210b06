"""What chance decides for the augmentation of whole batches: RandAugment, MixUp, CutMix. Numpy only.

The draws are made on the host, from (seed, epoch, position) like all others, and travel with the batch: a few
numbers for each image. So the device needs no random numbers, and makes the same of them everywhere.

An example is mixed with its neighbour in the batch: rows 0 and 1 are partners, rows 2 and 3, and so on. The
order of training is a permutation, so a neighbour is as random a partner as any; and as long as ranks take
even numbers of rows, both are on the same rank, however many there are. Each of the two draws its own share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from infra.errors import ConfigError, UsageError
from infra.splitmix import U64
from training.arrays import Floats
from training.augment.beta import beta_quantiles
from training.config.augment import AugmentSettings, RandAugmentSettings
from training.order.hashing import key_of, uniform

# The operations of RandAugment. Their order is part of a run's exact resume.
OPS = (
    "identity",
    "autocontrast",
    "equalize",
    "rotate",
    "solarize",
    "color",
    "posterize",
    "contrast",
    "brightness",
    "sharpness",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)
_NUMBER = {name: number for number, name in enumerate(OPS)}

# What an operation does at magnitude 10.
_MOST = {"rotate": np.pi / 6, "shear": 0.3, "translate": 0.45, "factor": 0.9, "bits": 4}

_BATCHED = 8  # keeps these keys apart from those of the draws for each image
_OP, _SIGN = 0, 100
_WHETHER, _WHICH, _SHARE, _TOP, _LEFT = 200, 201, 202, 203, 204


class BatchDraws(NamedTuple):
    """What is to be done with a batch, row by row: arrays of numpy, or tensors.

    Attributes:
        ops: int32 [B, N], numbers of ``OPS``; N = 0 without RandAugment.
        amounts: float32 [B, N]: the factor of color, contrast, brightness and sharpness; the threshold of
            solarize; the step between levels of posterize; 1 for all others.
        warps: float32 [B, N, 8]: where a pixel comes from, as TensorFlow's projective transformation has it.
        blend: float32 [B], share of the row's own image outside the box: below 1 in MixUp.
        boxes: int32 [B, 4]: y, x, height, width of what is the partner's (pixels), in CutMix.
        own: float32 [B], share of the row's own label; that of its partner has the rest.
    """

    ops: npt.NDArray[np.int32]
    amounts: npt.NDArray[np.float32]
    warps: npt.NDArray[np.float32]
    blend: npt.NDArray[np.float32]
    boxes: npt.NDArray[np.int32]
    own: npt.NDArray[np.float32]


def draw_batch(
    settings: AugmentSettings, seed: int, epoch: int, positions: npt.NDArray[np.int64], image_size: int
) -> BatchDraws:
    """The draws of the examples at ``positions`` of an epoch.

    Args:
        settings: how examples are varied.
        seed: of the run.
        epoch: which pass.
        positions: int64 [B] within the epoch.
        image_size: height and width of the images (pixels).
    """
    keys = key_of(_BATCHED, seed, epoch, positions)
    ops, amounts, warps = _operations(keys, settings.randaugment, image_size)
    blend, boxes = _mixing(keys, settings, image_size)
    own = blend * (1.0 - boxes[:, 2] * boxes[:, 3] / image_size**2)
    as_floats = (np.asarray(part, np.float32) for part in (amounts, warps, blend, own))
    amounts32, warps32, blend32, own32 = as_floats
    return BatchDraws(ops, amounts32, warps32, blend32, boxes, own32)


def refuse_batched(settings: AugmentSettings | None) -> None:
    """For readers without TensorFlow.

    Raises:
        UsageError: something is to be done to whole batches.
    """
    if settings is not None and settings.is_batched:
        raise UsageError(
            "randaugment, mixup and cutmix are done to batches of TensorFlow",
            "read with tf(...), or leave them to the code that trains",
        )


def check_pairs(settings: AugmentSettings, rows: int) -> None:
    """Partners in a mixture are neighbours in the batch of one device.

    Raises:
        ConfigError: ``rows`` is odd, so that one has no neighbour.
    """
    if settings.mixes and rows % 2:
        raise ConfigError(
            f"augment.mixup and augment.cutmix mix pairs of examples; a device takes {rows} of each batch",
            "choose a data.global_batch_size that gives each device an even number of rows",
        )


def _operations(
    keys: U64, settings: RandAugmentSettings, image_size: int
) -> tuple[npt.NDArray[np.int32], Floats, Floats]:
    """(ops [B, N], amounts [B, N], warps [B, N, 8])."""
    rounds = range(settings.num_ops)
    shape = (keys.size, settings.num_ops)
    ops, sign = np.zeros(shape, np.int32), np.zeros(shape)
    for number in rounds:
        ops[:, number] = (uniform(keys, _OP + number) * len(OPS)).astype(np.int32)
        sign[:, number] = np.where(uniform(keys, _SIGN + number) < 0.5, -1.0, 1.0)
    strength = settings.magnitude / 10
    return ops, _amounts(ops, sign, strength), _warps(ops, sign * strength, image_size)


def _amounts(ops: npt.NDArray[np.int32], sign: Floats, strength: float) -> Floats:
    enhancing = np.isin(ops, [_NUMBER[name] for name in ("color", "contrast", "brightness", "sharpness")])
    amounts = np.where(enhancing, 1.0 + sign * strength * _MOST["factor"], 1.0)
    amounts[ops == _NUMBER["solarize"]] = 256.0 * (1.0 - strength)
    amounts[ops == _NUMBER["posterize"]] = 2.0 ** round(_MOST["bits"] * strength)
    return amounts


def _warps(ops: npt.NDArray[np.int32], signed: Floats, image_size: int) -> Floats:
    """Output pixel (x, y) is input pixel (a x + b y + c, d x + e y + f): rows (a, b, c, d, e, f, 0, 0)."""
    angle = np.where(ops == _NUMBER["rotate"], signed * _MOST["rotate"], 0.0)
    shear_x = np.where(ops == _NUMBER["shear_x"], signed * _MOST["shear"], 0.0)
    shear_y = np.where(ops == _NUMBER["shear_y"], signed * _MOST["shear"], 0.0)
    reach = _MOST["translate"] * image_size
    shift_x = np.where(ops == _NUMBER["translate_x"], signed * reach, 0.0)
    shift_y = np.where(ops == _NUMBER["translate_y"], signed * reach, 0.0)
    warps = np.zeros((*ops.shape, 8))
    warps[..., 0] = warps[..., 4] = np.cos(angle)
    warps[..., 1] = np.sin(angle) + shear_x
    warps[..., 3] = shear_y - np.sin(angle)
    # Turned and sheared about the centre of the image, which stays where it is.
    centre = (image_size - 1) / 2
    warps[..., 2] = centre - centre * (warps[..., 0] + warps[..., 1]) + shift_x
    warps[..., 5] = centre - centre * (warps[..., 3] + warps[..., 4]) + shift_y
    return warps


def _mixing(keys: U64, settings: AugmentSettings, image_size: int) -> tuple[Floats, npt.NDArray[np.int32]]:
    """(blend [B], boxes [B, 4]): MixUp (Zhang et al. 2018) and CutMix (Yun et al. 2019)."""
    blend, boxes = np.ones(keys.shape), np.zeros((keys.size, 4), np.int32)
    mixed = uniform(keys, _WHETHER) < settings.mix_probability
    both = bool(settings.mixup and settings.cutmix)
    is_mixup = uniform(keys, _WHICH) < 0.5 if both else np.full(keys.shape, bool(settings.mixup))
    draws = uniform(keys, _SHARE)
    if settings.mixup:
        share = beta_quantiles(draws, settings.mixup)
        # A pair and its mirror image are equally likely, so that the greater share may be the row's own: then
        # two partners that draw alike do not become the same picture.
        blend = np.where(mixed & is_mixup, np.maximum(share, 1.0 - share), 1.0)
    if settings.cutmix:
        cut = mixed & ~is_mixup
        boxes[cut] = _boxes(keys, beta_quantiles(draws, settings.cutmix), image_size)[cut]
    return blend, boxes


def _boxes(keys: U64, own: Floats, image_size: int) -> npt.NDArray[np.int32]:
    """Squares of area 1 - own about a uniform centre, as far as they lie in the image: int32 [B, 4]."""
    half = image_size * np.sqrt(1.0 - own) / 2
    corners = []
    for stream in (_TOP, _LEFT):
        centre = uniform(keys, stream) * image_size
        start = np.clip(np.rint(centre - half), 0, image_size)
        corners.append((start, np.clip(np.rint(centre + half), 0, image_size) - start))
    (top, height), (left, width) = corners
    return np.stack([top, left, height, width], axis=1).astype(np.int32)
