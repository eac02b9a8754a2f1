"""The order in which things happen: one module per verb, and what they share."""
