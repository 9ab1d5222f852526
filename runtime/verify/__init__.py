"""Is a version better than the one before, and has it forgotten nothing?"""
