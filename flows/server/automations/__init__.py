"""Automatic reactions to events of the server: messages to people, and trainings."""
