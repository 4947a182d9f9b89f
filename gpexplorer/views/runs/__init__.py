"""Pictures that apply to any run, or compare several runs."""
