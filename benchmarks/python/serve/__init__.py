"""The server under load, beside what no server can be faster than."""
