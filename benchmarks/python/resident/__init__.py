"""A step of decoding with its keys on the server, beside other ways."""
