"""Many samples: surveyed, paired, compared."""
