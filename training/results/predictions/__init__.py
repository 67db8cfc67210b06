"""Predictions of each record of a split: the Parquet file, the hardest examples, likely label errors.

``predictions-<split>.parquet`` has a row a record, in stored order; ``PREDICTION_COLUMNS`` are its columns,
and its metadata name the classes. Label errors and comparisons are computed from these files alone.
"""
