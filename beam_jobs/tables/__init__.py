"""Arrow tables: record ids, look-up by sorted id, digests of rows, cutting, compact columns of text."""
