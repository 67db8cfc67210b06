"""The figures of the page: each module reads tables or the manifest and returns small rows to show."""
