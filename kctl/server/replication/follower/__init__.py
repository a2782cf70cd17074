"""Following leaders."""
