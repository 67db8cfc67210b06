"""Small trainings, by the command or in this process, and folders of finished runs."""
