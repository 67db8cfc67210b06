"""Measure each stage of reading alone and all together, and find the bottleneck."""
