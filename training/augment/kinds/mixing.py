"""MixUp (Zhang et al. 2018) and CutMix (Yun et al. 2019): mix examples in pairs.

An example is mixed with its neighbour in the batch: rows 0 and 1 are partners, rows 2 and 3, and so on. The
order of training is a permutation, so a neighbour is as random a partner as any other. As long as ranks take
even numbers of rows, both are on the same rank. Each of the two draws its own share. torchvision's classes
``MixUp`` and ``CutMix`` draw numbers of their own, and are therefore not used.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from shardmill.infra.preparation import SampleKind
from shardmill.infra.settings import Settings
from shardmill.infra.splitmix import U64
from shardmill.training.arrays import Floats
from shardmill.training.augment.kind import Arrays, BatchAugmentation, tf, torch
from shardmill.training.draws import uniform

_IS_MIXED, _IS_MIXUP, _SHARE, _BOX_TOP, _BOX_LEFT = 200, 201, 202, 203, 204  # streams
_CELLS = 4096  # of the table of the beta distribution


class _Fields(Settings):
    mixup: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description=(
            "Blend examples and labels with their neighbours', in shares of Beta(alpha, alpha); 0.2 is usual"
        ),
    )
    cutmix: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description=(
            "A box of an example, and its share of the label, is its neighbour's, in shares of "
            "Beta(alpha, alpha); 1 is usual"
        ),
    )
    mix_probability: float = Field(
        default=1.0, ge=0, le=1, description="share of the examples that are mixed"
    )


class Mixing(BatchAugmentation[_Fields]):
    """Blends whole images with their partners (MixUp), or replaces a box by theirs (CutMix).

    Draws ``blend``, float32 [B], the share of the row's own image outside the box: below 1 in MixUp;
    ``boxes``, int32 [B, 4]: y, x, height, width of the box from the partner (pixels), in CutMix; and
    ``own_share``.
    """

    Fields = _Fields
    turn = 20
    streams = range(_IS_MIXED, _BOX_LEFT + 1)
    mixes = True

    @property
    def name(self) -> str:
        """The settings that are on."""
        return " and ".join(f"augment.{one}" for one in ("mixup", "cutmix") if getattr(self.settings, one))

    @property
    def is_on(self) -> bool:
        """Whether any example is mixed."""
        return bool((self.settings.mixup or self.settings.cutmix) and self.settings.mix_probability)

    def draw(self, keys: U64, image_size: int) -> Arrays:
        """Draw the shares and boxes of a batch."""
        blend, boxes = np.ones(keys.shape), np.zeros((keys.size, 4), np.int32)
        mixup, cutmix = self.settings.mixup, self.settings.cutmix
        mixed = uniform(keys, _IS_MIXED) < self.settings.mix_probability
        both = bool(mixup and cutmix)
        is_mixup = uniform(keys, _IS_MIXUP) < 0.5 if both else np.full(keys.shape, bool(mixup))
        draws = uniform(keys, _SHARE)
        if mixup:
            share = beta_quantiles(draws, mixup)
            # A share and its complement are equally likely, so the row may always take the greater one. Then
            # partners that draw similar shares do not become the same picture.
            blend = np.where(mixed & is_mixup, np.maximum(share, 1.0 - share), 1.0)
        if cutmix:
            cut = mixed & ~is_mixup
            boxes[cut] = _boxes(keys, beta_quantiles(draws, cutmix), image_size)[cut]
        own_share = blend * (1.0 - boxes[:, 2] * boxes[:, 3] / image_size**2)
        return {
            "blend": blend.astype(np.float32),
            "boxes": boxes,
            "own_share": own_share.astype(np.float32),
        }

    def unfit(self, samples: SampleKind) -> str:
        """Say that all images can be mixed."""
        return ""

    def tensorflow(self, *, deterministic: bool) -> Any:
        """Return the function that mixes images [b, S, S, C] with these parameters."""
        return _on_tensorflow

    def torch(self, images: Any, drawn: Arrays) -> Any:
        """Mix images [b, C, S, S] on their device."""
        place = torch.arange(images.shape[-1], device=images.device)
        boxes = torch.from_numpy(drawn["boxes"]).to(images.device)
        top, left, height, width = boxes[:, :, None].unbind(1)
        in_rows = (place >= top) & (place < top + height)
        in_columns = (place >= left) & (place < left + width)
        in_box = (in_rows[:, :, None] & in_columns[:, None, :])[:, None]
        blend = torch.from_numpy(drawn["blend"]).to(images.device)[:, None, None, None]
        own = blend.masked_fill(in_box, 0.0)  # shares of the row's own image, [b, 1, S, S]
        first, second = images[0::2].float(), images[1::2].float()
        mixed = torch.empty_like(images)
        is_whole = not images.is_floating_point()  # then first and second are copies
        difference = second.sub_(first) if is_whole else second - first
        for row, share in ((0, 1.0 - own[0::2]), (1, own[1::2])):  # shares of the second image of each pair
            values = torch.addcmul(first, difference, share)
            if is_whole:
                mixed[row::2] = values.round_()
            else:  # what is not finite stays where none of it is taken
                mixed[row::2] = torch.where(share == 0, first, torch.where(share == 1, second, values))
        return mixed


def tensorflow_partners(rows: Any) -> Any:
    """Swap each row of a tensor of TensorFlow with its partner: [b, ...], b even."""
    shape = tf.shape(rows)
    pairs = tf.reshape(rows, tf.concat([[shape[0] // 2, 2], shape[1:]], axis=0))
    return tf.ensure_shape(tf.reshape(tf.reverse(pairs, [1]), shape), rows.shape)


def _on_tensorflow(images: Any, drawn: dict[str, Any]) -> Any:
    size = tf.range(images.shape[1])
    top, left, height, width = tf.unstack(drawn["boxes"][:, :, None], axis=1)
    in_rows = (size >= top) & (size < top + height)
    in_columns = (size >= left) & (size < left + width)
    in_box = (in_rows[:, :, None] & in_columns[:, None, :])[..., None]
    own_share = tf.where(in_box, 0.0, drawn["blend"][:, None, None, None])
    pixels = tf.cast(images, tf.float32)
    partners = tensorflow_partners(pixels)
    mixed = own_share * pixels + (1.0 - own_share) * partners
    if images.dtype.is_floating:  # what is not finite stays where none of it is taken
        return tf.where(own_share == 1.0, pixels, tf.where(own_share == 0.0, partners, mixed))
    return tf.saturate_cast(tf.round(mixed), images.dtype)


def _boxes(keys: U64, own_share: Floats, image_size: int) -> npt.NDArray[np.int32]:
    """Return squares of area 1 - own_share about a uniform centre, clipped to the image: int32 [B, 4]."""
    half = image_size * np.sqrt(1.0 - own_share) / 2
    corners = []
    for stream in (_BOX_TOP, _BOX_LEFT):
        centre = uniform(keys, stream) * image_size
        start = np.clip(np.rint(centre - half), 0, image_size)
        corners.append((start, np.clip(np.rint(centre + half), 0, image_size) - start))
    (top, height), (left, width) = corners
    return np.stack([top, left, height, width], axis=1).astype(np.int32)


def beta_quantiles(draws: Floats, alpha: float) -> Floats:
    """Return the quantiles of Beta(alpha, alpha) at the probabilities ``draws``, exact within 1e-6.

    Written out because the project has no SciPy, and because a library's rejection sampling would take an
    unknown number of draws where a position has to have exactly one.

    Args:
        draws: float64 [B].
        alpha: above 0; 1 is the uniform distribution.

    Returns:
        float64 [B], in [0, 1].
    """
    probabilities, powers = _lower_half(alpha)
    mirrored = draws > 0.5
    lower = np.where(mirrored, 1.0 - draws, draws)
    half: Floats = np.interp(lower, probabilities, powers) ** (1.0 / alpha)
    return np.where(mirrored, 1.0 - half, half)


@functools.lru_cache(maxsize=16)
def _lower_half(alpha: float) -> tuple[Floats, Floats]:
    """Return the lower half of the distribution: (cumulated probabilities, powers x**alpha).

    In s = x**alpha the density is proportional to (1 - x)**(alpha - 1), which is bounded, whereas in x it has
    a pole at 0 for alpha below 1. So the trapezoidal rule over s is exact enough.
    """
    values = 0.5 * np.linspace(0.0, 1.0, _CELLS + 1) ** 4  # close together where small, for small alphas
    powers = values**alpha
    density = (1.0 - values) ** (alpha - 1.0)
    cumulated = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) * np.diff(powers))])
    return 0.5 * cumulated / cumulated[-1], powers
