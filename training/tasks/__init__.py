"""What a model learns: labels, loss, decoding, measures. One file per task; ``task.Task`` is the interface.

Training on a dataset uses ``single_label``. ``multi_label`` and ``regression`` work in the training step and
in evaluation, but no dataset can hold their labels yet, so no setting offers them.
"""
