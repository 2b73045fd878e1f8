"""The parts of `train_demo.py`, in the order in which they run: corpus, target, samples, drafter, ship, evaluate.

They train the small target and the EAGLE-3 drafter behind `eagle3-tui demo`. They share no code with the package that
later reads the result: what is shipped is then a test of the package, not an echo of it.
"""
