"""One file per kind of fault; a Finding says what, how bad, the evidence, and the fix."""
