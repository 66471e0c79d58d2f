"""What runs leave behind, read and drawn."""
