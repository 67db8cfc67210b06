"""The results of a training run: metrics, TensorBoard figures, consumed record ids, confusion matrix."""
