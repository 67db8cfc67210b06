"""A program as in tutorials: ``model.fit`` on a dataset, on one device or under ``MirroredStrategy``.

``python -m tests.samples.training.tutorial_fit ROOT NUM_DEVICES`` prints the accuracy on the validation
split.
"""

from __future__ import annotations

import sys

from training import open_dataset


def fit(root: str, devices: list[str] | None = None) -> float:
    """Train a small model; its accuracy on the validation split."""
    import keras
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    if devices:
        operations = tf.distribute.ReductionToOneDevice()
        strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=operations)
    dataset = open_dataset("set", root=root)
    train = dataset.tf("train", batch_size=8, image_size=8, epochs=3)
    validation = dataset.tf("validation", batch_size=8, image_size=8)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                keras.layers.Rescaling(1 / 255),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(len(dataset.classes)),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.3), loss, metrics=["accuracy"])
    history = model.fit(
        train,
        validation_data=validation,
        epochs=3,
        steps_per_epoch=len(train) // 3,
        shuffle=False,  # the dataset is in its order already; Keras warns that it cannot shuffle it
        verbose=0,
    )
    return float(history.history["val_accuracy"][-1])


if __name__ == "__main__":
    from training.ranks import tensorflow_runtime

    folder, number = sys.argv[1], int(sys.argv[2])
    tensorflow_runtime.start(devices=f"cpu:{number}")
    print(fit(folder, [f"CPU:{device}" for device in range(number)]))
