"""The parts of a flow run of Prefect: the job process, its artifacts, and the final state."""
