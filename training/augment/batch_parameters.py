"""Draw the parameters of RandAugment, MixUp and CutMix, which augment whole batches. Numpy only.

The parameters are drawn on the host from (seed, epoch, position), like all others, and travel with the batch:
a few numbers for each image. So the device needs no random numbers, and every device gives the same result.

An example is mixed with its neighbour in the batch: rows 0 and 1 are partners, rows 2 and 3, and so on. The
order of training is a permutation, so a neighbour is as random a partner as any other. As long as ranks take
even numbers of rows, both are on the same rank. Each of the two draws its own share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.splitmix import U64
from shardmill.training.arrays import Floats
from shardmill.training.augment.beta import beta_quantiles
from shardmill.training.config.augment import AugmentSettings, RandAugmentSettings
from shardmill.training.order.random_numbers import key_of, uniform
from shardmill.training.order.streams import BatchStream, Purpose

# The operations of RandAugment. Their order never changes, so that runs resume exactly.
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

# The strength of operations at magnitude 10.
_MOST = {"rotate": np.pi / 6, "shear": 0.3, "translate": 0.45, "factor": 0.9, "bits": 4}


class BatchParameters(NamedTuple):
    """The parameters of each row of a batch: numpy arrays or tensors.

    Attributes:
        ops: int32 [B, N], numbers of ``OPS``; N = 0 without RandAugment.
        amounts: float32 [B, N]: the factor of color, contrast, brightness and sharpness; the threshold of
            solarize; the step between levels of posterize; 1 for all others.
        warps: float32 [B, N, 8]: the coefficients of TensorFlow's projective transformation.
        blend: float32 [B], share of the row's own image outside the box: below 1 in MixUp.
        boxes: int32 [B, 4]: y, x, height, width of the box from the partner (pixels), in CutMix.
        own_share: float32 [B], share of the row's own label; that of its partner has the rest.
    """

    ops: npt.NDArray[np.int32]
    amounts: npt.NDArray[np.float32]
    warps: npt.NDArray[np.float32]
    blend: npt.NDArray[np.float32]
    boxes: npt.NDArray[np.int32]
    own_share: npt.NDArray[np.float32]


def draw_batch_parameters(
    settings: AugmentSettings, seed: int, epoch: int, positions: npt.NDArray[np.int64], image_size: int
) -> BatchParameters:
    """Draw the parameters of the examples at ``positions`` of an epoch.

    Args:
        settings: how examples are augmented.
        seed: the seed of the run.
        epoch: the epoch.
        positions: int64 [B] within the epoch.
        image_size: height and width of the images (pixels).
    """
    keys = key_of(Purpose.BATCH, seed, epoch, positions)
    ops, amounts, warps = _operations(keys, settings.randaugment, image_size)
    blend, boxes = _mixing(keys, settings, image_size)
    own_share = blend * (1.0 - boxes[:, 2] * boxes[:, 3] / image_size**2)
    as_floats = (np.asarray(part, np.float32) for part in (amounts, warps, blend, own_share))
    amounts32, warps32, blend32, own32 = as_floats
    return BatchParameters(ops, amounts32, warps32, blend32, boxes, own32)


def refuse_batched(settings: AugmentSettings | None) -> None:
    """Check that the settings need no augmentation of whole batches, which batches of numpy cannot have.

    Raises:
        UsageError: RandAugment, MixUp or CutMix is on.
    """
    if settings is not None and settings.is_batched:
        raise UsageError(
            "augment.randaugment, augment.mixup and augment.cutmix are only available with .tf and .torch",
            "read with one of these, or turn them off and apply them in your own training code",
        )


def check_pairs(settings: AugmentSettings, rows: int) -> None:
    """Check that each row of a device has a partner to be mixed with.

    Raises:
        ConfigError: examples are mixed, and ``rows`` is odd.
    """
    if settings.mixes and rows % 2:
        raise ConfigError(
            f"augment.mixup and augment.cutmix mix pairs of examples; a device takes {rows} of each batch",
            "choose a data.global_batch_size that gives each device an even number of rows",
        )


def _operations(
    keys: U64, settings: RandAugmentSettings, image_size: int
) -> tuple[npt.NDArray[np.int32], Floats, Floats]:
    """Return (ops [B, N], amounts [B, N], warps [B, N, 8])."""
    rounds = range(settings.num_ops)
    shape = (keys.size, settings.num_ops)
    ops, sign = np.zeros(shape, np.int32), np.zeros(shape)
    for number in rounds:
        ops[:, number] = (uniform(keys, BatchStream.OPERATION + number) * len(OPS)).astype(np.int32)
        sign[:, number] = np.where(uniform(keys, BatchStream.SIGN + number) < 0.5, -1.0, 1.0)
    strength = settings.magnitude / 10
    return ops, _amounts(ops, sign, strength), _warps(ops, sign * strength, image_size)


def _amounts(ops: npt.NDArray[np.int32], sign: Floats, strength: float) -> Floats:
    enhancing = np.isin(ops, [_NUMBER[name] for name in ("color", "contrast", "brightness", "sharpness")])
    amounts = np.where(enhancing, 1.0 + sign * strength * _MOST["factor"], 1.0)
    amounts[ops == _NUMBER["solarize"]] = 256.0 * (1.0 - strength)
    amounts[ops == _NUMBER["posterize"]] = 2.0 ** round(_MOST["bits"] * strength)
    return amounts


def _warps(ops: npt.NDArray[np.int32], signed: Floats, image_size: int) -> Floats:
    """Return rows (a, b, c, d, e, f, 0, 0): output (x, y) comes from input (a x + b y + c, d x + e y + f)."""
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
    # Turn and shear about the centre of the image.
    centre = (image_size - 1) / 2
    warps[..., 2] = centre - centre * (warps[..., 0] + warps[..., 1]) + shift_x
    warps[..., 5] = centre - centre * (warps[..., 3] + warps[..., 4]) + shift_y
    return warps


def _mixing(keys: U64, settings: AugmentSettings, image_size: int) -> tuple[Floats, npt.NDArray[np.int32]]:
    """Draw MixUp (Zhang et al. 2018) and CutMix (Yun et al. 2019). Return (blend [B], boxes [B, 4])."""
    blend, boxes = np.ones(keys.shape), np.zeros((keys.size, 4), np.int32)
    mixed = uniform(keys, BatchStream.IS_MIXED) < settings.mix_probability
    both = bool(settings.mixup and settings.cutmix)
    is_mixup = (
        uniform(keys, BatchStream.IS_MIXUP) < 0.5 if both else np.full(keys.shape, bool(settings.mixup))
    )
    draws = uniform(keys, BatchStream.SHARE)
    if settings.mixup:
        share = beta_quantiles(draws, settings.mixup)
        # A share and its complement are equally likely, so the row may always take the greater one. Then
        # partners that draw similar shares do not become the same picture.
        blend = np.where(mixed & is_mixup, np.maximum(share, 1.0 - share), 1.0)
    if settings.cutmix:
        cut = mixed & ~is_mixup
        boxes[cut] = _boxes(keys, beta_quantiles(draws, settings.cutmix), image_size)[cut]
    return blend, boxes


def _boxes(keys: U64, own_share: Floats, image_size: int) -> npt.NDArray[np.int32]:
    """Return squares of area 1 - own_share about a uniform centre, clipped to the image: int32 [B, 4]."""
    half = image_size * np.sqrt(1.0 - own_share) / 2
    corners = []
    for stream in (BatchStream.BOX_TOP, BatchStream.BOX_LEFT):
        centre = uniform(keys, stream) * image_size
        start = np.clip(np.rint(centre - half), 0, image_size)
        corners.append((start, np.clip(np.rint(centre + half), 0, image_size) - start))
    (top, height), (left, width) = corners
    return np.stack([top, left, height, width], axis=1).astype(np.int32)
