"""Copy shards from an object store to a local folder ahead of use."""
