"""Programs, each a thin main over rlclip."""
