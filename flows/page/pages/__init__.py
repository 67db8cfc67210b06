"""The pages: each takes a request, reads its data, and fills a template."""
