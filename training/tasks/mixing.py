"""Targets of examples that MixUp or CutMix mixed in pairs."""

from __future__ import annotations

from typing import Any

from training.augment.batched import partners


def mixed_targets(targets: Any, own_share: Any | None) -> Any:
    """Return the targets of mixed examples: float32 [b, T].

    Args:
        targets: float32 [b, T]; the rows 2k and 2k + 1 are partners.
        own_share: float32 [b], the share of each row's own target; None: nothing was mixed.
    """
    if own_share is None:
        return targets
    return own_share[:, None] * targets + (1.0 - own_share)[:, None] * partners(targets)
