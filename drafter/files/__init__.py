"""Bytes on disk, safely."""
