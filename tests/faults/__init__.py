"""A really trained tiny drafter with its target, and the faults that are put into them one at a time."""
