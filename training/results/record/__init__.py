"""What a run tells of itself in its folder: figures of each epoch, environment, and how to open it again."""
