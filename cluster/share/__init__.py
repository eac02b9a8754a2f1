"""Planners: make the weights readable on the other nodes."""
