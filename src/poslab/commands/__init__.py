"""What each command of `poslab` does, and the command line that they share."""
