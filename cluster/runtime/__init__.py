"""Ways to run a rank of the server; planners, they perform nothing."""
