"""The split of each record, and leaks: groups that are in several splits."""
