"""The kinds of sources, a module or folder each; a new kind is a new file here.

A module is found by its name (``source.kind``). These are its functions; only the first one is required::

    list_inputs(folder, config) -> Listing                      every image, and why some cannot be used
    open_reader(folder, config, scratch) -> Reader              without it, images are plain files
    make_readable(folder, config, references, scratch) -> None  done once before the images are read
    recognise(glance, settings) -> Recognised | None            whether source.kind = "auto" may choose it
    first_images(folder, config) -> Iterator[bytes]             whether ``prepare --as-is`` takes it over
    import_settings(folder, config) -> dict                     settings of the source that an import adds

and ``Options`` is a model (shardmill.infra.settings.Settings) of ``source.options``.
``shardmill.beam_jobs.sources`` calls them.
"""
