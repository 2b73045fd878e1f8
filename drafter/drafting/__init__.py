"""Chains of drafts."""
