"""Command-line programs: thin mains over rlclip."""
