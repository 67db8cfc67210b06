"""Train on all folds of a split but one: the division into folds, and the order over some of the records."""
