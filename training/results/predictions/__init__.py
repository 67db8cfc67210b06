"""Predictions of each record of a split: the Parquet file, the hardest examples, likely label errors.

``predictions-<split>.parquet`` has one row per record, as stored. Its columns are ``COMMON_COLUMNS`` and
those of the task (``columns``); its metadata name the task and the classes. Label errors and comparisons are
computed from these files alone.
"""
