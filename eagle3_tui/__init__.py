"""Screens and commands over `drafter`; nothing in here does tensor arithmetic."""

__version__ = "0.1.0"
