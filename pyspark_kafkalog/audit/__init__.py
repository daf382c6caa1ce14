"""Counts messages, and keeps the counts where the files of the place are."""
