"""Settings: their types, limits and parsing, and the files that they name."""
