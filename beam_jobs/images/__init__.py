"""One image: orient, convert, resize and encode. Pure functions over bytes."""
