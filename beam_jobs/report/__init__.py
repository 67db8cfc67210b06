"""The HTML report of a version: inputs and results as figures, pictures and plots.

    writing     from a version's files to its page
    lost        the page of a refused run, and the event that names lost inputs
    sections    each section: its values, and its template in templates/
    findings    what deserves a look
    figures/    the figures of the page
    gallery, thumbnails   its pictures: of inputs that are in no shard, and of records

The report is one self-contained page without scripts. The template engine escapes every text, and a content
security policy forbids scripts and requests, so a file name or a label can do no harm.

The size of the page is bounded (``PAGE_AT_MOST_BYTES``): pictures are a sample by hash, and lists end with a
count of the rest. Memory is bounded too: tables are read in batches and counted by Arrow.
"""

from shardmill.beam_jobs.report.writing import PAGE_AT_MOST_BYTES, make_report, report_path, write_report

__all__ = ["PAGE_AT_MOST_BYTES", "make_report", "report_path", "write_report"]
