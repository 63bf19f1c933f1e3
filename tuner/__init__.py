"""The search loop: cost model, isolated measurement, Optuna strategy and budget."""
