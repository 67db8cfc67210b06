"""TensorFlow Datasets: a builder with a plain generator, or with a Beam pipeline (SHARDMILL_BENCH_BEAM)."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from tests.benchmarks.inputs.photographs import Photograph, arguments, convert, key_of, photographs

ON_BEAM = "SHARDMILL_BENCH_BEAM" in os.environ

Row = tuple[str, dict[str, Any]]


def row(photograph: Photograph, codec: str) -> Row:
    """(key, features) of one photograph."""
    path, label = photograph
    return key_of(path), {"image": convert(path, codec), "label": label}


class Photographs(tfds.core.GeneratorBasedBuilder):
    """The photographs of a folder."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = Path(__file__).parent

    def __init__(self, source: Path, codec: str, **keywords: Any) -> None:
        self._source = source
        self._codec = codec
        super().__init__(**keywords)

    def _info(self) -> tfds.core.DatasetInfo:
        classes = sorted(path.name for path in self._source.iterdir() if path.is_dir())
        features = {
            "image": tfds.features.Image(encoding_format="jpeg"),
            "label": tfds.features.ClassLabel(names=classes),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Any:
        return self._on_beam() if ON_BEAM else self._one_by_one()

    def _one_by_one(self) -> Iterator[Row]:
        for photograph in photographs(self._source):
            yield row(photograph, self._codec)

    def _on_beam(self) -> Any:
        import apache_beam as beam

        return beam.Create(photographs(self._source)) | beam.Map(functools.partial(row, codec=self._codec))


def main() -> None:
    told = arguments("tfds_dataset")
    config = tfds.download.DownloadConfig(num_shards=told.shards)
    if ON_BEAM:
        from tests.benchmarks.prepare.peers import beam_runner

        config.beam_runner = beam_runner.runner()
        config.beam_options = beam_runner.options(told.workers)
    builder = Photographs(told.source, told.codec, data_dir=str(told.out))
    builder.download_and_prepare(download_config=config)


if __name__ == "__main__":
    main()
