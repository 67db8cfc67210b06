"""What follows by itself on events of the server: messages to people, and trainings."""
