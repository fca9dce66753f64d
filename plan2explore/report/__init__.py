"""What people read of runs: pages, tables, plots, lists and videos."""
