"""Arrow tables: ids and digests, cutting, columns of lists, of texts and of features."""
