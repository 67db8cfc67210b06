"""Shared code of the kinds whose images are rows of files: Parquet, arrays, TFRecord, ArrayRecord.

A *row file* is a file of the source with an image in each row. A kind says what its files hold
(``FileRows``); this folder makes the listing of it, and reads the rows.
"""
