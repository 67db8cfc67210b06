"""The pictures of the page: thumbnails of records, and of inputs that are in no shard."""
