"""Where the time of reading goes: each stage alone, all together, and what to do about the dearest."""
