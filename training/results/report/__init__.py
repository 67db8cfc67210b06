"""``report.html``: one page about a run, made from its folder and its dataset.

::

    drawing     the page again, from the files of a run that may be unfinished

    writing     what the page shows, collected; the file
    label_errors_page  a page of its own about the label errors of all folds
    page        Jinja2 templates, and what fills them
    examples    the first examples as a file, for other pages
    gallery     thumbnails of records, with links to their sources
    curves      the figures of all epochs as SVG
"""
