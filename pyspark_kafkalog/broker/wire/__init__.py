"""One connection: frames, strict answers, login, time limits and error codes."""
