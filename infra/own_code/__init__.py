"""Code of users: the modules that their settings name, its faults, and files of theirs that hide others.

This package loads nothing: ``hiding`` has to work where a file of the user hides a module that we import.
"""
