"""Hits, totals and what follows from them."""
