"""Five families of methods side by side on the same rows: what each has done after a step, and what it cost."""
