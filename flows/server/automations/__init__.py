"""Runs that begin by themselves: the parameters of schedules, and trainings on new versions."""
