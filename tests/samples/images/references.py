"""Slow and exact: the filters in float64 that scaled images are held against, and how near they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def area(image: npt.NDArray[Any], height: int, width: int) -> Floats:
    """Each new pixel is the mean over the area that it covers. ``image``: [H, W] or [H, W, C]."""
    rows, columns = _area_weights(image.shape[0], height), _area_weights(image.shape[1], width)
    return np.einsum("yh,hw...,xw->yx...", rows, image.astype(np.float64), columns, optimize=True)


def lanczos(image: npt.NDArray[Any], height: int, width: int) -> Floats:
    """The windowed sinc of three lobes, widened where a side shrinks."""
    rows, columns = _lanczos_weights(image.shape[0], height), _lanczos_weights(image.shape[1], width)
    return np.einsum("yh,hw...,xw->yx...", rows, image.astype(np.float64), columns, optimize=True)


def _area_weights(length: int, new: int) -> Floats:
    edges = np.arange(new + 1) * length / new
    places = np.arange(length)
    covered = np.minimum(edges[1:, np.newaxis], places + 1) - np.maximum(edges[:-1, np.newaxis], places)
    weights = np.clip(covered, 0, None)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _lanczos_weights(length: int, new: int) -> Floats:
    scale = length / new
    centres = (np.arange(new) + 0.5) * scale
    distance = (np.arange(length) + 0.5 - centres[:, np.newaxis]) / max(scale, 1.0)
    weights = np.where(np.abs(distance) < 3, np.sinc(distance) * np.sinc(distance / 3), 0)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def zone_plate(height: int, width: int) -> npt.NDArray[np.uint8]:
    """uint8 [H, W]: rings that become finer outwards, up to the finest that there are."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    y, x = y - height / 2, x - width / 2
    phase = np.pi / 2 * (x**2 / (width / 2) + y**2 / (height / 2))
    return np.asarray(np.rint(127.5 + 120 * np.cos(phase)), np.uint8)


def psnr(found: npt.NDArray[Any], reference: npt.NDArray[Any]) -> float:
    """Peak signal-to-noise ratio (dB) of what has 255 for its peak."""
    error = np.mean((found.astype(np.float64) - reference) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-12)))
