"""RandAugment (Cubuk et al. 2020): some operations, drawn from fourteen, on whole batches on the device.

The fourteen operations are of four kinds. With TensorFlow each is done to the whole batch with the parameters
of each row, which leave the rows of other operations as they are: a warp; a lookup table (a function of the
value alone); a blend with grey; a blend with a smoothed image. So shapes are fixed, and there is no branch.
With PyTorch the rows with the same operation and amount are transformed together, by
``torchvision.transforms.v2``; the results are the same within two grey levels.

The operations are those of Pillow, except the warps: these interpolate linearly, keep the centre fixed, and
fill uncovered pixels with grey.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from shardmill.infra.errors import UsageError
from shardmill.infra.extras import lacking
from shardmill.infra.settings import Settings
from shardmill.infra.splitmix import U64
from shardmill.training.arrays import Floats, Ints
from shardmill.training.augment.kind import Arrays, BatchAugmentation, Library, tf, torch
from shardmill.training.augment.kinds.color_jitter import LUMA
from shardmill.training.draws import uniform

functional = Library("torchvision.transforms.v2.functional")
_OPERATION, _SIGN = 0, 100  # streams; each takes one number an operation

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

_NOTHING = 128.0  # the grey of pixels that a warp leaves uncovered
_BRIGHTEST = 255  # torchvision refuses a threshold above it
_WARPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")


class RandAugmentSettings(Settings):
    """RandAugment (Cubuk et al. 2020): some operations, drawn from fourteen, all of one strength."""

    num_ops: int = Field(default=0, ge=0, le=4, description="operations on each example; 0 turns it off")
    magnitude: float = Field(
        default=5.0, ge=0, le=10, description="their strength: at 10 they turn by 30° or shift by 45 %"
    )


class _Fields(Settings):
    randaugment: RandAugmentSettings = Field(
        default_factory=RandAugmentSettings, description="drawn operations, on the device"
    )


class RandAugment(BatchAugmentation[_Fields]):
    """Draws N operations for each image.

    Draws ``ops``, int32 [B, N], numbers of ``OPS``; ``amounts``, float32 [B, N]: the factor of color,
    contrast, brightness and sharpness, the threshold of solarize, the step between levels of posterize, 1 for
    all others; and ``warps``, float32 [B, N, 8]: the coefficients of TensorFlow's projective transformation.
    """

    Fields = _Fields
    turn = 10
    streams = range(_OPERATION, 2 * _SIGN)
    name = "augment.randaugment"

    @property
    def is_on(self) -> bool:
        """Whether there are operations."""
        return self.settings.randaugment.num_ops > 0

    def draw(self, keys: U64, image_size: int) -> Arrays:
        """Draw the operations of a batch."""
        ops, amounts, warps = _operations(keys, self.settings.randaugment, image_size)
        return {"ops": ops, "amounts": amounts.astype(np.float32), "warps": warps.astype(np.float32)}

    def tensorflow(self, *, deterministic: bool) -> Any:
        """Return the function that transforms images uint8 [b, S, S, C] with these parameters.

        It goes in stages, each a function of its own. On the CPU each is compiled by XLA, which makes one
        loop of many small operations and is several times as fast. In one piece they would be slower again,
        for XLA would then compute a pixel anew for each of its neighbours. GPUs run TensorFlow's kernels.
        """
        on_host = not tf.config.list_physical_devices("GPU")
        # On GPUs TensorFlow's histogram is not deterministic, and fails if determinism is required.
        count = sorted_histogram if deterministic and not on_host else histogram

        def stage(function: Any) -> Any:
            return tf.function(function, jit_compile=on_host, autograph=False)

        warped, recolored, sharpened = stage(warp), stage(recolor), stage(sharpen)
        looked_up = stage(lambda pixels, ops, amounts: tables(count(pixels), ops, amounts))

        def augmented(images: Any, drawn: dict[str, Any]) -> Any:
            channels = images.shape[-1]
            if channels == 1:  # the operations keep three equal channels equal, but for a rounding
                images = tf.repeat(images, 3, axis=-1)
            for number in range(drawn["ops"].shape[1]):
                ops, amounts = drawn["ops"][:, number], drawn["amounts"][:, number]
                images = warped(images, drawn["warps"][:, number])
                images = recolored(images, looked_up(images, ops, amounts), ops, amounts)
                images = sharpened(images, ops, amounts)
            return images[..., 1:2] if channels == 1 else images

        return augmented

    def torch(self, images: Any, drawn: Arrays) -> Any:
        """Transform images uint8 [b, C, S, S] on their device."""
        if images.dtype != torch.uint8:
            raise UsageError(
                f"RandAugment needs images of uint8, and got {images.dtype}",
                "convert and normalise images after augment_on_device",
            )
        try:
            return _on_torch(images, drawn)
        except ModuleNotFoundError as error:
            if error.name != "torchvision":
                raise
            raise lacking("augment.randaugment", "torchvision", "torch") from error

    def described(self, drawn: Arrays, row: int) -> str:
        """Return the names of the operations."""
        return ", ".join(OPS[number] for number in drawn["ops"][row])


def _operations(
    keys: U64, settings: RandAugmentSettings, image_size: int
) -> tuple[npt.NDArray[np.int32], Floats, Floats]:
    """Return (ops [B, N], amounts [B, N], warps [B, N, 8])."""
    rounds = range(settings.num_ops)
    shape = (keys.size, settings.num_ops)
    ops, sign = np.zeros(shape, np.int32), np.zeros(shape)
    for number in rounds:
        ops[:, number] = (uniform(keys, _OPERATION + number) * len(OPS)).astype(np.int32)
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


# -- TensorFlow. Places are computed in float32, which holds them exactly: TensorFlow computes with int32 on
# the    host only.


def warp(images: Any, warps: Any) -> Any:
    """Turn, shear or shift images.

    Args:
        images: uint8 [b, S, S, 3].
        warps: float32 [b, 8], as ``RandAugment`` draws them.

    Returns:
        uint8 [b, S, S, 3].
    """
    size = images.shape[1]
    places = tf.range(float(size))
    a, b, c, d, e, f, _, _ = tf.unstack(warps[:, :, None, None], axis=1)
    x = a * places + b * places[:, None] + c  # [b, S, S]
    y = d * places + e * places[:, None] + f
    left, top = tf.floor(x), tf.floor(y)
    right_share, lower_share = (x - left)[..., None], (y - top)[..., None]
    rows = tf.reshape(tf.cast(images, tf.float32), [-1, size * size, 3])

    def at(row: Any, column: Any) -> Any:
        inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
        place = tf.clip_by_value(row, 0.0, size - 1.0) * size + tf.clip_by_value(column, 0.0, size - 1.0)
        return tf.where(inside[..., None], tf.gather(rows, tf.cast(place, tf.int32), batch_dims=1), _NOTHING)

    upper = at(top, left) * (1.0 - right_share) + at(top, left + 1.0) * right_share
    lower = at(top + 1.0, left) * (1.0 - right_share) + at(top + 1.0, left + 1.0) * right_share
    return _as_bytes(upper * (1.0 - lower_share) + lower * lower_share)


def histogram(images: Any) -> Any:
    """Count each value in each image and channel: float32 [b, 3, 256]."""
    flat = tf.cast(_by_channel(images), tf.int32)
    unweighted = tf.constant([], tf.float32)
    counts = tf.raw_ops.DenseBincount(input=flat, size=256, weights=unweighted)
    return tf.reshape(counts, [-1, 3, 256])


def sorted_histogram(images: Any) -> Any:
    """Do what ``histogram`` does by sorting, which is slower but deterministic on GPUs."""
    flat = tf.sort(tf.cast(_by_channel(images), tf.float32), axis=-1)
    values = tf.broadcast_to(tf.range(256.0), [tf.shape(flat)[0], 256])
    up_to = tf.cast(tf.searchsorted(flat, values, side="right"), tf.float32)
    counts = up_to - tf.pad(up_to[:, :-1], [[0, 0], [1, 0]])
    return tf.reshape(counts, [-1, 3, 256])


def tables(counts: Any, ops: Any, amounts: Any) -> Any:
    """Return the lookup tables of the operations: the new value of each old one.

    Args:
        counts: float32 [b, 3, 256], the histogram.
        ops: int32 [b], numbers of ``OPS``.
        amounts: float32 [b], of each operation.

    Returns:
        float32 [b, 3, 256], whole numbers of 0 to 255.
    """
    value = tf.range(256.0)
    amount = amounts[:, None, None]
    by_name = {
        "autocontrast": _autocontrast(counts),
        "equalize": _equalized(counts),
        "solarize": tf.where(value < amount, value, 255.0 - value),
        "posterize": tf.math.floordiv(value, amount) * amount,
        "contrast": _contrasted(counts, amount),
        "brightness": amount * value,
    }
    chosen = tf.broadcast_to(value, tf.shape(counts))
    for name, table in by_name.items():
        chosen = tf.where((ops == _NUMBER[name])[:, None, None], table, chosen)
    return tf.clip_by_value(tf.round(chosen), 0.0, 255.0)


def recolor(images: Any, lookup: Any, ops: Any, amounts: Any) -> Any:
    """Send the images through their tables, and blend them with grey: uint8 [b, S, S, 3]."""
    rows = tf.range(tf.cast(tf.shape(images)[0], tf.float32))[:, None, None, None]
    places = 256.0 * (3.0 * rows + tf.range(3.0)) + tf.cast(images, tf.float32)
    pixels = tf.gather(tf.reshape(lookup, [-1]), tf.cast(places, tf.int32))
    grey = _luma(pixels)[..., None]
    return _as_bytes(grey + _amount_of("color", ops, amounts) * (pixels - grey))


def sharpen(images: Any, ops: Any, amounts: Any) -> Any:
    """Sharpen or smooth the images: uint8 [b, S, S, 3].

    Smoothed by Pillow's SMOOTH, a weighted mean of 3 × 3 pixels; the outermost stay as they are.
    """
    pixels = tf.cast(images, tf.float32)
    inner = pixels[:, 1:-1, 1:-1]
    columns = pixels[:, :-2] + pixels[:, 1:-1] + pixels[:, 2:]
    sums = columns[:, :, :-2] + columns[:, :, 1:-1] + columns[:, :, 2:]
    smooth = tf.round((sums + 4.0 * inner) / 13.0)
    sharp = _as_bytes(smooth + _amount_of("sharpness", ops, amounts) * (inner - smooth))
    middle = tf.concat([images[:, 1:-1, :1], sharp, images[:, 1:-1, -1:]], axis=2)
    return tf.concat([images[:, :1], middle, images[:, -1:]], axis=1)


def _amount_of(name: str, ops: Any, amounts: Any) -> Any:
    """Return the factor for rows of this operation, 1 for the others: float32 [b, 1, 1, 1]."""
    return tf.where(ops == _NUMBER[name], amounts, 1.0)[:, None, None, None]


def _autocontrast(counts: Any) -> Any:
    """Stretch each channel from its darkest to its brightest value."""
    value = tf.range(256.0)
    low = tf.reduce_min(tf.where(counts > 0, value, 255.0), axis=-1, keepdims=True)
    high = tf.reduce_max(tf.where(counts > 0, value, 0.0), axis=-1, keepdims=True)
    stretched = tf.clip_by_value(tf.floor((value - low) * 255.0 / tf.maximum(high - low, 1.0)), 0.0, 255.0)
    return tf.where(high > low, stretched, value)


def _equalized(counts: Any) -> Any:
    """Flatten the histogram of each channel. The counts are whole, and float32 holds them exactly."""
    value = tf.range(256.0)
    brightest = tf.reduce_max(tf.where(counts > 0, value, 0.0), axis=-1, keepdims=True)
    num_brightest = tf.reduce_sum(tf.where(value == brightest, counts, 0.0), axis=-1, keepdims=True)
    step = tf.floor((tf.reduce_sum(counts, axis=-1, keepdims=True) - num_brightest) / 255.0)
    below = tf.cumsum(counts, axis=-1, exclusive=True)
    divisor = tf.maximum(step, 1.0)
    flat = tf.clip_by_value(tf.floor((tf.floor(divisor / 2.0) + below) / divisor), 0.0, 255.0)
    return tf.where(step > 0, flat, value)


def _contrasted(counts: Any, amount: Any) -> Any:
    """Move values towards the image's mean luma, or away from it."""
    value = tf.range(256.0)
    means = tf.reduce_sum(counts * value, axis=-1) / tf.reduce_sum(counts, axis=-1)
    mean = tf.round(_luma(means))[:, None, None]
    return mean + amount * (value - mean)


def _luma(pixels: Any) -> Any:
    """Return the luma of pixels: [..., 3] to [...]."""
    red, green, blue = (float(weight) for weight in LUMA)
    return red * pixels[..., 0] + green * pixels[..., 1] + blue * pixels[..., 2]


def _by_channel(images: Any) -> Any:
    """Reshape images to uint8 [3 b, S * S]."""
    return tf.reshape(tf.transpose(images, [0, 3, 1, 2]), [-1, images.shape[1] * images.shape[2]])


def _as_bytes(pixels: Any) -> Any:
    return tf.saturate_cast(tf.round(pixels), tf.uint8)


# -- PyTorch


def _on_torch(images: Any, drawn: Arrays) -> Any:
    """Apply the drawn operations to each image, one after the other.

    Args:
        images: uint8 [b, C, S, S], C 1 or 3, on any device.
        drawn: the parameters of these rows; numpy arrays.

    Returns:
        uint8 [b, C, S, S], ``images`` itself if there are no operations.
    """
    for number in range(drawn["ops"].shape[1]):
        images = images.clone()
        for rows in _alike(drawn, number):
            name, first = OPS[drawn["ops"][rows[0], number]], rows[0]
            if name != "identity":
                chosen = torch.from_numpy(rows).to(images.device)
                amount, warp = float(drawn["amounts"][first, number]), drawn["warps"][first, number].tolist()
                images[chosen] = _transformed(images[chosen], name, amount, warp)
    return images


def _alike(drawn: Arrays, number: int) -> list[Ints]:
    """Return groups of rows that have the same operation with the same parameters."""
    columns = (drawn["ops"][:, number, None], drawn["amounts"][:, number, None], drawn["warps"][:, number])
    values, groups = np.unique(np.concatenate(columns, axis=1), axis=0, return_inverse=True)
    return [np.flatnonzero(groups.reshape(-1) == group) for group in range(len(values))]


def _transformed(images: Any, name: str, amount: float, warp: list[float]) -> Any:
    if name in _WARPS:
        return _warped(images, warp)
    return {
        "autocontrast": lambda: functional.autocontrast(images),
        "equalize": lambda: functional.equalize(images),
        "solarize": lambda: functional.solarize(images, amount) if amount <= _BRIGHTEST else images,
        "posterize": lambda: functional.posterize(images, 8 - round(math.log2(amount))),
        "color": lambda: functional.adjust_saturation(images, amount),
        "contrast": lambda: functional.adjust_contrast(images, amount),
        "brightness": lambda: functional.adjust_brightness(images, amount),
        "sharpness": lambda: functional.adjust_sharpness(images, amount),
    }[name]()


def _warped(images: Any, warp: list[float]) -> Any:
    """Turn, shear or shift images. Output (x, y) comes from input (a x + b y + c, d x + e y + f)."""
    a, b, c, d, e, f, _, _ = warp
    # The warp counts from the centre of the first pixel, torchvision from its corner.
    coefficients = [a, b, c + 0.5 * (1.0 - a - b), d, e, f + 0.5 * (1.0 - d - e), 0.0, 0.0]
    # Relative to the grey of uncovered pixels, which is then zero, as torchvision fills by default.
    relative = images.float() - _NOTHING
    moved = functional.perspective(relative, None, None, coefficients=coefficients)
    return (moved + _NOTHING).round_().clamp_(0, 255).to(torch.uint8)
