"""The pages: each takes a request, reads what it shows, and fills a template."""
