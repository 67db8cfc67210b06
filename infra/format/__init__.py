"""The dataset format: names, schemas, the manifest, TFRecord framing and tf.train.Example messages."""
