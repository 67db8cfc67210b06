"""Tell other systems about a run: MLflow and Weights & Biases. The run's own files stay the truth.

::

    trackers    which systems are told; a system that fails is left alone from then on
    mlflow      MLflow, by mlflow-skinny
    wandb       Weights & Biases
    tracked     what they are told of a run, and where its identity there is kept
"""
