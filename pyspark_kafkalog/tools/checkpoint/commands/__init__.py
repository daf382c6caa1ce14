"""The commands of this tool."""
