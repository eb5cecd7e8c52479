"""`hubbub top`: the whole bus on one screen, as it goes on.

`gather` looks at the bus, `sheets` makes tables of what it saw, `app` and its two screens show
them. Only these three know textual, which is an extra of its own.
"""
