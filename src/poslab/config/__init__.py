"""Types, limits and parsing of settings."""
