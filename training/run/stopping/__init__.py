"""Stop a run when a signal asks for it, all ranks at the same step."""
