"""What the keys of one view set in motion, and what came of it: one file a view, driven by the Controller."""
