"""Commands about training runs: list, compare, evaluate, predict."""
