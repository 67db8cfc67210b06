"""The HTML report of a version: what went in, what came out, as pictures and plots.

One self-contained page without scripts. Every text on it is escaped by the template engine, and its
content security policy forbids scripts and requests of any kind, so that neither a file name nor a label
can do anything but be read.

Its size is bounded (``PAGE_AT_MOST_BYTES``) whatever the version holds: pictures are a sample by hash and
lists end with a count of the rest. So is memory: tables are read in batches, and counted by Arrow.
"""

from beam_jobs.report.making import PAGE_AT_MOST_BYTES, make_report, report_path, write_report
from beam_jobs.report.page import load_templates

__all__ = ["PAGE_AT_MOST_BYTES", "load_templates", "make_report", "report_path", "write_report"]
