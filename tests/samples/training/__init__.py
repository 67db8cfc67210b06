"""Trainings by the command and in process, and what they leave."""
