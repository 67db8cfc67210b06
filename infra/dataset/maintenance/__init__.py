"""Remove or restore versions: garbage, purged contents, rollback."""
