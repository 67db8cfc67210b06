"""The guard: a decoder that crashes, hangs or eats memory costs one row, not the job.

Image libraries are C: what goes wrong in one takes its whole process along. So the process that works on
images (the child) and the one that waits for it (the parent) share a *journal* of the images in work. When
the child dies of a signal, or an image is in work for too long, or memory runs out, the parent tries each
suspect *alone*, in a disposable process under limits of time and memory. A culprit gets a *verdict*; the
child starts again, goes on from its finished blocks, and writes the culprit's row without decoding it::

    journal.py     which images are in work: one slot a thread, in memory that outlives the child
    attempts.py    the worker's side: what has a verdict is not decoded, what is decoded stands in the journal
    alone.py       the disposable process: decodes one file under limits
    trial.py       starts it and judges what it did
    verdicts.py    the verdicts, by content and limits, kept in the spool
    start.py       the job's process and its journal, before anything else is loaded
    supervise.py   the parent's side: runs the child, watches, tries, starts it again

A verdict depends on the file, the libraries and the limits, never on what the process or its threads did when
it struck, so its row is the same in every run.
"""
