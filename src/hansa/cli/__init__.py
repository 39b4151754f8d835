"""hansa's programs: the `hansa` command and what it starts."""
