"""Records of internal topics."""
