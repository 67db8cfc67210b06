"""The files of a run: figures of each epoch, environment, what each rank did, and how to open it again."""
