"""Run the command `shardmill` as ``python -m shardmill.flows.cli``."""

from shardmill.flows.cli import main

main()
