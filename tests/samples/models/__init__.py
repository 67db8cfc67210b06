"""Models as users write them, some of which fail on purpose."""
