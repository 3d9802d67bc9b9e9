"""Mistakes that people make, as tables, and what becomes of each: a clear error, a traceback, or nothing at all."""
