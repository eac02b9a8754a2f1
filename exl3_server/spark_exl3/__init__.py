"""An OpenAI-compatible server over ExLlamaV3's public interface, for one GPU and one request at a time."""

__version__ = "0.1.0"
