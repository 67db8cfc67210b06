"""Columns of Arrow tables: record ids, look-up by sorted id, digests of rows, compact columns of text."""
