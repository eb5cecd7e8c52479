"""What the tables of a recording say, as pictures, findings in plain words, and numbers.

Everything here is pure but `reading`: tables become figures, figures become findings, and both
become a page. Neither Spark nor the bus may enter; whatever came from the bus is hostile text.
"""
