"""What a model of PyTorch learns: one file per task, as in ``shardmill.training.tasks``."""
