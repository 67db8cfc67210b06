"""Tell other systems about a run: MLflow and Weights & Biases. The run's own files stay the truth.

::

    trackers    the systems that get reports; one that fails gets no more
    mlflow      MLflow, by mlflow-skinny
    wandb       Weights & Biases
    tracked     the facts of a run that they get, and the file that keeps its identity there
"""
