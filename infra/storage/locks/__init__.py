"""Locks: of the kernel on local disks, leases on object stores."""
