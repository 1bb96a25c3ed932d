"""Side by side with other libraries: attention, training step, generation, start-up, and the main job."""
