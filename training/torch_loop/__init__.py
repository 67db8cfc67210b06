"""Train one model with PyTorch: what ``training.loop`` does with TensorFlow. Imports PyTorch where it trains.

Order, checkpoints, stopping, schedules, reports and the folder of the run are shared with that package.
"""
