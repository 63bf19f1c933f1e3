"""Passes over tensor-level graphs: functions from a valid graph to an equivalent valid one, a file each."""
