"""Storage: folders on local disks and object stores, their names and locations, and ranged reads."""
