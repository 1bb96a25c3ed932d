"""What each script does, and the command line that they share."""
