"""Maintenance of published versions: compaction and purge."""
