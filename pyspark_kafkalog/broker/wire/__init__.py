"""A connection: frames, strict reading of responses, login, deadlines and error codes."""
