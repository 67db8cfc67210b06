"""Formats of tables: each reads the wanted columns as text, and turns broken rows into rows with a fault."""
