"""One reader for each producer's layout."""
