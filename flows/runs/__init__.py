"""The parts of a flow run: the job process, its artifacts, and the final state."""
