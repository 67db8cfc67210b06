"""Find the bottleneck among the measured stages, and its remedy. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardmill.training.profiling.stages import Stage

# Storage is the bottleneck if the first read of a record takes this many times the rest of a thread's work.
_SLOW_STORAGE = 1.5
# The model is the bottleneck if reading is this much faster.
_ENOUGH = 1.1
# Stored images with sides this much larger than the model's waste decoding time.
_TOO_LARGE = 1.6


@dataclass(frozen=True, slots=True)
class Rates:
    """Images a second of several stages together; None: not measured.

    Attributes:
        batches: batches as numpy arrays, by all threads.
        pipeline: the same as a ``tf.data`` pipeline.
        model: training steps on one batch that is there already.
        training: training steps on the pipeline's batches.
    """

    batches: float
    pipeline: float | None = None
    model: float | None = None
    training: float | None = None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The bottleneck: its name, the reason, and the remedy."""

    stage: str
    reason: str
    remedy: str


def find_bottleneck(
    stages: Sequence[Stage], rates: Rates, *, num_cpus: int, stored_side: float, image_size: int
) -> Bottleneck:
    """Find the bottleneck.

    Args:
        stages: the stages, each measured alone on one thread.
        rates: the rates of all stages together.
        num_cpus: the CPUs that this process may use.
        stored_side: median short side of the stored images (pixels).
        image_size: height and width of the images (pixels).
    """
    costs = {stage.name: stage.microseconds for stage in stages}
    first_read = costs.pop("read (first time)", 0.0)
    work = sum(costs.values())
    reading = rates.pipeline or rates.batches
    if rates.model is not None and reading >= _ENOUGH * rates.model:
        return _model(rates.model, reading)
    if first_read > _SLOW_STORAGE * num_cpus * work:
        return _storage(first_read, work)
    name = max(costs, key=lambda each: costs[each])
    share = costs[name] / work
    reason = f"{share:.0%} of the work on an image: {costs[name]:,.0f} of {work:,.0f} µs of one core"
    if rates.model is not None:
        reason += f"; the model could take {rates.model:,.0f} images/s and gets {reading:,.0f}"
    return Bottleneck(name, reason, _remedy(name, stored_side, image_size))


def _model(model: float, reading: float) -> Bottleneck:
    return Bottleneck(
        "model",
        f"a training step takes {model:,.0f} images/s, and {reading:,.0f} could be read",
        "a faster device, run.mixed_precision, or a larger data.global_batch_size; reading is fast enough",
    )


def _storage(first_read: float, work: float) -> Bottleneck:
    return Bottleneck(
        "read (first time)",
        f"storage takes {first_read:,.0f} µs a record, and all the rest {work:,.0f} µs",
        "keep images between epochs: reading.cache = 'memory' or 'disk'; or read neighbours together: "
        "data.granularity = 'block'",
    )


def _remedy(stage: str, stored_side: float, image_size: int) -> str:
    if stage in ("decode", "resize") and stored_side > _TOO_LARGE * image_size:
        return (
            f"images are stored with a short side of {stored_side:,.0f} and used at {image_size}: "
            f"prepare them with image.size = {round(image_size * 8 / 7)}"
        )
    return _REMEDIES[stage]


_REMEDIES = {
    "plan": "larger batches: data.global_batch_size",
    "read": "records are large: prepare with a smaller image.size or image.quality",
    "inflate": "prepare with container = 'none': JPEGs hardly shrink in gzip",
    "decode": "more CPU cores; or keep decoded images: reading.cache, in the decoded form",
    "resize": "prepare images nearer to the size they are used at",
    "transfer": "run.mixed_precision does not help here; a smaller data.image_size does",
    "augment": "turn augment.color_jitter or augment.erasing down, or use augment.randaugment, which works "
    "on whole batches on the device",
}
