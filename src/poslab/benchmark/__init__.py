"""Side by side with other libraries: attention, training step, start-up, and the main job."""
