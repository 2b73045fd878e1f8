"""Recorded samples in the layouts of their producers, written from a seed: what was written is the truth to test by."""
