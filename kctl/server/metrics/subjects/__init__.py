"""The metrics, one module per subject: their definitions, and the functions that compute their values."""
