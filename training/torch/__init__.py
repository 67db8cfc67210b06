"""Training with PyTorch: data, models, step, tasks, ranks and export.

Order, checkpoints, stopping, schedules, reports and the folder of the run are shared with that package.
"""
