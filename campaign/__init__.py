"""`campaign`: experiment campaigns over several supercomputers, from a site file to an answer."""

__version__ = "0.1.0"
