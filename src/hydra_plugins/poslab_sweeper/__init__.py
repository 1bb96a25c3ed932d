"""The sweeper that poslab adds to Hydra."""
