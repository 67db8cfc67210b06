"""Training with TensorFlow: data, models, step, tasks, ranks and export."""
