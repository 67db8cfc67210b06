"""Fetching: images behind http and https addresses, asked for politely and kept until they are published.

addresses   the addresses of a table: checked, in one form each, and without credentials
network     connections: only to public addresses, and to the address that was checked
client      one request, the understanding of its answer, and headers by which a server reserves its images
fetcher     one address, through redirects, repetitions and pauses, to its answer
store       answers and bodies, in the spool of the run and in the folder of the dataset
rounds      all addresses of a run: those of many hosts at a time, resumed where an earlier run stopped
"""
