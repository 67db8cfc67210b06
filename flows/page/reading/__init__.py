"""What the page shows, read from data sets, run folders, disks and Prefect's API."""
