"""A flow that a real server opens to the outside, through source NAT."""


class Inside:
    """To come."""
