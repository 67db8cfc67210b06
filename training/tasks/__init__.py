"""What a model learns: labels, loss, decoding, measures. One file per task; ``task.Task`` is the interface.

::

    task         the interface
    traits       facts about each task: figures, settings that apply
    kinds        what tasks of classes and of numbers share in every framework
    annotations  objects of images as labels

The tasks themselves are in the folders ``tasks`` of ``shardmill.training.tensorflow`` and
``shardmill.training.torch``: a further one is a file there with a class that implements ``Task``, a line in
``of_dataset.BUILDERS`` beside it, and one in ``traits.TRAITS``. Its figures are a ``Tally`` of
``shardmill.training.results.metrics``, each with a row in ``figures.FIGURES`` and a name in
``run.best_metric``. Its predictions are ``PredictionColumns`` of ``shardmill.training.results.predictions``.
"""
