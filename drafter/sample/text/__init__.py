"""Token ids as text, and loss masks by what the text says."""
