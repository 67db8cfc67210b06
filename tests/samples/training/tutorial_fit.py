"""A program as in tutorials: ``model.fit`` on a dataset, on one device or under ``MirroredStrategy``.

``python -m tests.samples.training.tutorial_fit ROOT NUM_DEVICES EPOCHS`` prints the accuracy on the
validation split, and what the model saw in each epoch.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from typing import Any

from shardmill import open_dataset

OPTIONS: dict[str, Any] = {"batch_size": 8, "image_size": 8}


def fit(
    root: str, epochs: int, devices: list[str] | None = None, first_epoch: int = 0
) -> tuple[float, list[list[int]]]:
    """Train a small model.

    Returns:
        The accuracy on the validation split, and of each epoch the sum of the pixels of each image.
    """
    import keras
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    if devices:
        operations = tf.distribute.ReductionToOneDevice()
        strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=operations)
    seen: list[dict[int, list[int]]] = []  # of each epoch and replica

    def note(sums: Any, replica: Any) -> Any:
        seen[-1][int(replica)].extend(sums.tolist())
        return sums

    class Noting(keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            images, labels = data
            sums = tf.reduce_sum(tf.cast(images, tf.int64), axis=[1, 2, 3])
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            noted = tf.numpy_function(note, [sums, replica], tf.int64)
            with tf.control_dependencies([noted]):
                return super().train_step((tf.identity(images), labels))

    dataset = open_dataset("set", root=root)
    train = dataset.tf("train", first_epoch=first_epoch, **OPTIONS)
    validation = dataset.tf("validation", **OPTIONS)
    with strategy.scope():
        model = Noting(
            [
                keras.Input((8, 8, 3)),
                keras.layers.Rescaling(1 / 255),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(len(dataset.classes)),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.1), loss, metrics=["accuracy"])
    begun = keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: seen.append(defaultdict(list)))
    history = model.fit(
        train,
        validation_data=validation,
        epochs=epochs,
        shuffle=False,  # the dataset is in its order already; Keras warns that it cannot shuffle it
        callbacks=[begun],
        verbose=0,
    )
    rows = OPTIONS["batch_size"] // len(devices or "1")
    return float(history.history["val_accuracy"][-1]), [_in_order(epoch, rows) for epoch in seen]


def _in_order(of_replicas: dict[int, list[int]], rows: int) -> list[int]:
    """Join what the replicas saw, so many rows of each step each."""
    parts = [of_replicas[replica] for replica in sorted(of_replicas)]
    starts = range(0, len(parts[0]), rows)
    return [value for start in starts for part in parts for value in part[start : start + rows]]


if __name__ == "__main__":
    from shardmill.training.tensorflow import starting

    folder, number, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    starting.start(devices=f"cpu:{number}")
    print(json.dumps(fit(folder, epochs, [f"CPU:{device}" for device in range(number)])))
