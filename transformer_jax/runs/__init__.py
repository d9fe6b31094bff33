"""What makes a run directory: training from settings to the last checkpoint, its record, monitoring, checkpoint tools."""
