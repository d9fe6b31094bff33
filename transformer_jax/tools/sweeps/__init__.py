"""Many runs as one: what is varied, who trains which, and what came out. Optuna keeps the account."""
