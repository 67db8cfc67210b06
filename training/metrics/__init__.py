"""Figures of predictions. Pure functions and sums over batches, numpy only.

A metric is a ``Figure`` in ``FIGURES`` of the ``Evaluation`` of its task, one file a task. Settings, pages,
comparisons and promotion find it there. One that needs further counts adds them to the evaluation, its
``Tally``, and ``resampled`` beside it, which evaluates records that are drawn with replacement.
"""
