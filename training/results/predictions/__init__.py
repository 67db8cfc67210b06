"""Predictions of each record of a split: the Parquet file, the hardest examples, likely label errors.

``predictions-<split>.parquet`` has one row per record, as stored; its columns are ``PREDICTION_COLUMNS``,
and its metadata name the classes. Label errors and comparisons are computed from these files alone.
"""
