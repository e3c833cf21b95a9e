"""Our attention beside other people's, on one machine and in one run."""
