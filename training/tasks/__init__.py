"""What a model learns: labels, loss, decoding, measures. One file per task; ``task.Task`` is the interface.

::

    of_dataset   kind of labels of a dataset version -> its task
    traits       facts about each task that need no framework: figures, settings that apply
    task         the interface
    single_label, multi_label, regression, detection, segmentation    the tasks
    boxes        of detection: which cells learn which object, losses, decoding
    target_scale mean and deviation of the numbers that a regression predicts

A further task is a file with a class that implements ``Task`` and a function ``build(version, config)``, a
line in ``of_dataset.BUILDERS``, and one in ``traits.TRAITS``. Its figures are a ``Tally`` of
``shardmill.training.results.metrics``, each with a row in ``figures.FIGURES`` and a name in
``run.best_metric``. Its predictions are ``PredictionColumns`` of ``shardmill.training.results.predictions``.
With PyTorch the same is done in ``shardmill.training.torch.tasks``.
"""
