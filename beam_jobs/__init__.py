"""Raw images to balanced, sharded, compressed TFRecords: sources, image work, planning, assembling.

Runs on Apache Beam and on its own: ``python -m shardmill.beam_jobs.prepare SOURCE --dataset NAME``. Imports
neither TensorFlow nor Prefect.
"""
