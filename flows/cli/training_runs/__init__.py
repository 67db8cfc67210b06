"""Commands about training runs: list, compare, evaluate, predict, and look for label errors."""
