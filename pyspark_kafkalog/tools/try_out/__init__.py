"""A broker and a demo to try things with."""
