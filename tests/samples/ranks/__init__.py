"""Ranks in this process and in processes of their own, placed by this machine or from outside."""
