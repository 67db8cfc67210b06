"""Beam job 2: planned shards to TFRecord files and indexes, copied from spool and previous version."""
