"""Pure functions of data frames: what a recording means. No files, no clock, no bus."""
