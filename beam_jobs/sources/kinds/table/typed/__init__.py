"""Columns of a table with a type: features and labels that are numbers, bytes or lists.

conversion    texts and Arrow values as int64, float32, text or bytes; which of them have no such form
labels        several labels or numbers in place of one class
features      the features that the settings name, one table like the other
"""
