"""Pictures of results, each one SVG file of its own."""
