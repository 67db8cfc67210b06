"""Read the page's data from datasets, run folders, disks and Prefect's API."""
