"""What chance does to a training example. Every draw is a function of (seed, epoch, position)."""

from __future__ import annotations

from training.augment.draws import Windows, central_windows, flips, keys_at, random_windows, windows

__all__ = ["Windows", "central_windows", "flips", "keys_at", "random_windows", "windows"]
