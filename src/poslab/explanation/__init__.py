"""One model explained: what its scheme computes, what the model does with it, and the page that shows both."""
