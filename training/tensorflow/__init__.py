"""Training with TensorFlow: data, models, step, tasks, ranks and export. This file imports no TensorFlow."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read while TensorFlow is imported
