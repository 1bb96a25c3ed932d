"""Enter a positional encoding into the track, or make its board: `python scripts/track.py my_file.Scheme`."""

from poslab.commands.cli import main

if __name__ == "__main__":
    main("track")
