"""Trials of the checks on drafters that were really trained, run by hand: what is put in, and what is said of it."""
