"""What a GPU is asked for and what it gains: counts on a simulated GPU, and times where there is a real one."""
