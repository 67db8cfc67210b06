"""The configuration of ``prepare``: the settings, with their defaults and bounds.

Imports neither Beam nor an image library, since the flows make their forms from it.

    prepare   all settings
    source    the source, its kind, and which settings a kind takes
    columns   what the columns of a source hold, and what becomes of the labels in them
    kinds     the files of single kinds of sources
    known_kinds  the names and descriptions of all kinds
    masks     the masks of images
    image     the stored form of an image, and inputs to leave out
    planning  splits, groups (with vectors of the images), shards, drift
    runner    execution of the Beam jobs
    maintain  the maintenance of a dataset, a configuration of its own
"""

from shardmill.beam_jobs.config.columns import ColumnsConfig, FeatureColumn
from shardmill.beam_jobs.config.kinds import (
    DEFAULT_OPT_OUT,
    AnnotationFile,
    ArchiveConfig,
    BoxTableConfig,
    ObjectsConfig,
    RowCompression,
    RowsConfig,
    TableConfig,
    TfdsConfig,
    UrlsConfig,
)
from shardmill.beam_jobs.config.masks import MasksConfig
from shardmill.beam_jobs.config.planning import (
    EmbeddingsConfig,
    GroupsConfig,
    Leakage,
    ShardsConfig,
    SplitsConfig,
)
from shardmill.beam_jobs.config.prepare import DEFAULT_IGNORE, FilterConfig, ImageConfig, PrepareConfig
from shardmill.beam_jobs.config.runner import DataflowConfig, FlinkConfig, RunnerConfig
from shardmill.beam_jobs.config.source import SourceConfig

__all__ = [
    "DEFAULT_IGNORE",
    "DEFAULT_OPT_OUT",
    "AnnotationFile",
    "ArchiveConfig",
    "BoxTableConfig",
    "ColumnsConfig",
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
