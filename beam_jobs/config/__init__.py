"""The configuration of ``prepare``: the settings, with their defaults and bounds.

Imports neither Beam nor an image library, since the flows make their forms from it.

    prepare      all settings
    source       the source and its kind
    sources/     the settings of single kinds, and of labels: tables, objects, masks
    image        the stored form of an image
    filter       inputs to leave out
    planning/    splits, groups (with vectors of the images) and shards
    drift        the comparison with the version before
    runner       execution of the Beam jobs; flink, dataflow: on a Flink cluster, on Google's service
    maintain     the maintenance of a dataset, a configuration of its own
"""

from shardmill.beam_jobs.config.dataflow import DataflowConfig
from shardmill.beam_jobs.config.filter import DEFAULT_IGNORE, FilterConfig
from shardmill.beam_jobs.config.flink import FlinkConfig
from shardmill.beam_jobs.config.image import ImageConfig
from shardmill.beam_jobs.config.planning.embeddings import EmbeddingsConfig
from shardmill.beam_jobs.config.planning.groups import GroupsConfig, Leakage
from shardmill.beam_jobs.config.planning.shards import ShardsConfig
from shardmill.beam_jobs.config.planning.splits import SplitsConfig
from shardmill.beam_jobs.config.prepare import PrepareConfig
from shardmill.beam_jobs.config.runner import RunnerConfig
from shardmill.beam_jobs.config.source import SourceConfig
from shardmill.beam_jobs.config.sources.containers import ArchiveConfig, RowCompression, RowsConfig
from shardmill.beam_jobs.config.sources.masks import MasksConfig
from shardmill.beam_jobs.config.sources.objects import AnnotationFile, BoxTableConfig, ObjectsConfig
from shardmill.beam_jobs.config.sources.table import FeatureColumn, TableConfig
from shardmill.beam_jobs.config.sources.tfds import TfdsConfig
from shardmill.beam_jobs.config.sources.urls import DEFAULT_OPT_OUT, UrlsConfig

__all__ = [
    "DEFAULT_IGNORE",
    "DEFAULT_OPT_OUT",
    "AnnotationFile",
    "ArchiveConfig",
    "BoxTableConfig",
    "DataflowConfig",
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
