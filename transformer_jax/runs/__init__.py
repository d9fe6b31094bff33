"""Run directories: training from settings to the last checkpoint, its record, monitoring, checkpoint tools."""
