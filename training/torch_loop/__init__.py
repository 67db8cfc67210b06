"""Train a model with PyTorch, as ``shardmill.training.loop`` with TensorFlow. Imports PyTorch to train.

Order, checkpoints, stopping, schedules, reports and the folder of the run are shared with that package.
"""
