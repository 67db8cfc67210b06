"""Fetching: images behind http and https addresses, asked for politely and kept until they are published.

addresses   the addresses of a table: checked, in one form each, and without credentials
network     connections: only to public addresses, and to the address that was checked
opting_out  response headers by which a server reserves its images
client      one request and the understanding of its answer
pacing      when requests to one host may begin, and when it is given up
fetcher     one address, through redirects and repetitions, to its answer
store       answers and bodies, in the spool of the run and in the folder of the dataset
rounds      all addresses of a run: those of many hosts at a time, resumed where an earlier run stopped
"""
