"""The demonstration: a small folder of real, imperfect images, taken through the whole of Shardmill.

``python -m flows.demo`` (or ``make demo``) makes the folder, runs ``shardmill run`` on it and says what
came out and where to look.
"""
