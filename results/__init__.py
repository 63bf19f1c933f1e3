"""What was measured and what was won: the plan database, its lookup, data frames, plots and reports."""
