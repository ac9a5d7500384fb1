"""Plots and reports of runs."""
