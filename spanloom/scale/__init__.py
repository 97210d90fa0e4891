"""Many devices: the mesh, which axis of an array lies along which of its axes, and what a step costs on hardware."""
