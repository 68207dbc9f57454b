"""Cards, pull requests, summaries and review pages. They read a Release and nothing else."""
