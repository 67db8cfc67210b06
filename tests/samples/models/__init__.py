"""Models as users write them; some of them fail on purpose."""
