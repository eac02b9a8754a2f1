"""Decisions across parts: pure functions from what was seen to what it means and what to do."""
