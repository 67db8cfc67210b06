"""Read the page's data from data sets, run folders, disks and Prefect's API."""
