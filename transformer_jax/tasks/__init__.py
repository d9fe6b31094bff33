"""A task binds data, model, loss and evaluation for the loop."""
