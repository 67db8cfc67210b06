"""Groups of similar files and records: equal bytes, pictures that look the same, shared keys."""
