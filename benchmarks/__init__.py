"""The same work done by Hubbub and by its peers, Python processes each, in one run.

Here live the adapters (`peers/`, one small file a peer), the work they all do (`work`) and what
prints the outcome (`report`). All use public APIs alone, Hubbub as well as its peers.
"""
