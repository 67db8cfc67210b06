"""What a model learns: labels, losses, predictions. One file a task, for every framework and command.

::

    task       the interface of a task, and the operations of a framework from which its losses are made
    kind       what holds of a task for every dataset: settings that apply, files of predictions
    registry   all kinds, found in this package
    settings   the settings of a run that its labels decide

The operations are in ``operations`` of each wing. A task that needs more of a framework, as detection does,
makes its losses there.
"""
