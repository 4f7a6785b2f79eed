"""Tools for those who work on the library: measures of its code, and mutations that its tests must notice."""
