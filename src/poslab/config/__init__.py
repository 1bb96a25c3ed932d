"""Types, limits and parsing of settings; nothing here loads torch."""
