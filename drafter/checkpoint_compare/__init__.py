"""Two checkpoints held against each other, and all checkpoints of a run: configs, tensors, outcomes on samples."""
