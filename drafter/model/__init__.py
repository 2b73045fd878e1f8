"""The forward."""
