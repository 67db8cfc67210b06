"""Arrow tables: record ids, look-up by sorted id, digests, cutting, columns of text and of features."""
