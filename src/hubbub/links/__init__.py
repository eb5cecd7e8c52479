"""Thin I/O, one file a link: sockets, their options, and nothing that decides about messages.

A link moves bursts of frames; what is in a frame, and what is done when one is lost, is the
business of `hubbub.protocol` and may not enter here.
"""
