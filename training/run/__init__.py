"""Train one model: the session, the epochs and steps, evaluation, checkpoints and interruption."""
