"""Shared parts of HTML pages: style sheet, environment of the templates, text."""
