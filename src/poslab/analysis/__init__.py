"""What runs have to show."""
