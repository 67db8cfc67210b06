"""The job of a flow run: its process, when it starts, when it stops, whether it is tried again."""
