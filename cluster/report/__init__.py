"""The only place that prints: events to people (terminal, plain lines) or to programs (JSON)."""
