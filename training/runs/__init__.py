"""What a run is: name, settings that it keeps, length and records; and the start of supervised ranks."""
