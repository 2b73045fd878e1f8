"""What the data of a sample shows about its slots."""
