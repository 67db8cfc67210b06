"""The configuration of ``prepare``: the settings, with their defaults and bounds.

Imports neither Beam nor an image library, since the flows make their forms from it.

    prepare      all settings
    source       the source and its kind; the settings of single kinds in files of their own
    image        the stored form of an image
    filter       inputs to leave out
    planning     splits, groups and shards; embeddings: vectors of the images
    runner       execution of the Beam jobs; flink: on a Flink cluster
    maintain     the maintenance of a dataset, a configuration of its own
"""

from beam_jobs.config.containers import ArchiveConfig, RowCompression, RowsConfig
from beam_jobs.config.embeddings import EmbeddingsConfig
from beam_jobs.config.filter import DEFAULT_IGNORE, FilterConfig
from beam_jobs.config.flink import FlinkConfig
from beam_jobs.config.image import ImageConfig
from beam_jobs.config.masks import MasksConfig
from beam_jobs.config.objects import AnnotationFile, BoxTableConfig, ObjectsConfig
from beam_jobs.config.planning import GroupsConfig, Leakage, ShardsConfig, SplitsConfig
from beam_jobs.config.prepare import PrepareConfig
from beam_jobs.config.runner import RunnerConfig
from beam_jobs.config.source import SourceConfig
from beam_jobs.config.table import FeatureColumn, TableConfig
from beam_jobs.config.tfds import TfdsConfig
from beam_jobs.config.urls import DEFAULT_OPT_OUT, UrlsConfig

__all__ = [
    "DEFAULT_IGNORE",
    "DEFAULT_OPT_OUT",
    "AnnotationFile",
    "ArchiveConfig",
    "BoxTableConfig",
    "EmbeddingsConfig",
    "FeatureColumn",
    "FilterConfig",
    "FlinkConfig",
    "GroupsConfig",
    "ImageConfig",
    "Leakage",
    "MasksConfig",
    "ObjectsConfig",
    "PrepareConfig",
    "RowCompression",
    "RowsConfig",
    "RunnerConfig",
    "ShardsConfig",
    "SourceConfig",
    "SplitsConfig",
    "TableConfig",
    "TfdsConfig",
    "UrlsConfig",
]
