"""Settings of the kinds of sources, and of the labels that a source gives its images."""
