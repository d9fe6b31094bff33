"""Files that start a run or a sweep with a scheduler that is already there: SLURM, Kubernetes, Cloud TPU VMs.

Text in, text out: nothing here connects to a cluster, so that the user can read, keep and change what will be run.
submitit, which submits to SLURM from Python, is not used: it ships functions as pickles, and nothing read from disk here may
run code. How processes find each other is left to ``jax.distributed.initialize`` and the variables that it reads.
"""
