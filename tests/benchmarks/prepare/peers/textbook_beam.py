"""Apache Beam as its guides have it: ``Create | Reshuffle | Map | WriteToTFRecord``."""

from __future__ import annotations

import functools

import apache_beam as beam
import tensorflow as tf

from tests.benchmarks.inputs.photographs import Photograph, arguments, convert, key_of, photographs
from tests.benchmarks.prepare.peers import beam_runner


def example(photograph: Photograph, codec: str) -> bytes:
    """A serialised ``tf.train.Example``."""
    path, label = photograph
    values = {
        "id": tf.train.Feature(bytes_list=tf.train.BytesList(value=[key_of(path).encode()])),
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[convert(path, codec)])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString())


def main() -> None:
    told = arguments("textbook_beam")
    told.out.mkdir(parents=True)
    with beam.Pipeline(runner=beam_runner.runner(), options=beam_runner.options(told.workers)) as pipeline:
        _ = (
            pipeline
            | beam.Create(photographs(told.source))
            | beam.Reshuffle()
            | beam.Map(functools.partial(example, codec=told.codec))
            | beam.io.WriteToTFRecord(
                str(told.out / "part"), file_name_suffix=".tfrecord", num_shards=told.shards
            )
        )


if __name__ == "__main__":
    main()
