"""Job files for SLURM, Kubernetes and SkyPilot."""
