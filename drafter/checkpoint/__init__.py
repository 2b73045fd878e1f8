"""What a draft checkpoint says."""
