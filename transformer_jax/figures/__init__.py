"""The pictures of the theory: each module computes numbers and draws them; the command ``figure`` makes them by name."""
