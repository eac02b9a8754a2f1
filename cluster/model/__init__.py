"""Values that every other part speaks in; no behaviour beyond arithmetic."""
