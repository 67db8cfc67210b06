"""Back up and restore the state of a platform: catalog, aliases, and the database of Prefect.

::

    DIR/
      backup.json               what is in it; written last
      prefect.db | prefect.dump Prefect's database: of SQLite, or of PostgreSQL in the format of pg_dump
      datasets/<dataset>/...    manifests, indexes, inputs, reports; shards only if asked for
      aliases/...               the aliases of models, with their history
"""
