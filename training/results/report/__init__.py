"""``report.html``: one page about a finished run, made from its folder and its dataset.

::

    writing     what the page shows, collected; the file
    page        Jinja2 templates, and what fills them
    gallery     thumbnails of records, with links to their sources
    curves      the figures of all epochs as SVG
"""
