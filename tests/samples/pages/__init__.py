"""Data for tests of pages and reports, and stand-ins for the servers that pages ask."""
