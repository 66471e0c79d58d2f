"""Decoders as pure functions over plain parameter trees; weights in and out."""
