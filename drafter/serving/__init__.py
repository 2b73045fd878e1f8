"""What servers make of a drafter: which recorded states they capture for its config, by engine, version and target."""
