"""Measure the memory of this process, and of its GPU as PyTorch counts it."""

from __future__ import annotations

from typing import Any

import psutil
import torch


def peak_device_bytes(device: Any) -> dict[str, int]:
    """Return the most memory that PyTorch has held of a GPU so far (bytes), by name; nothing of a CPU."""
    return {} if device.type == "cpu" else {str(device): int(torch.cuda.max_memory_reserved(device))}


def memory_figures(device: Any) -> dict[str, int]:
    """Return the memory of this process now, and the peak of its GPU so far, by name (bytes)."""
    figures = {"memory_process_bytes": int(psutil.Process().memory_info().rss)}
    for name, peak in peak_device_bytes(device).items():
        figures[f"memory_{name.replace(':', '_')}_peak_bytes"] = peak
    return figures
