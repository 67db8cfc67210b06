"""What a run is: its name, what it settled when it began, whether it may be longer, and its records."""
