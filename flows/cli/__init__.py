"""The command `shardmill`: the application, and one folder for each group of commands."""

from shardmill.flows.cli.app import main as main
from shardmill.flows.cli.app import run as run
