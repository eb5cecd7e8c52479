"""The cast of `make demo`: vehicles, a plant, a camera, and those who listen; a process each."""
