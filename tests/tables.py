"""Tables in documents, as the tests that keep them true read them."""


def read_table(text: str) -> list[list[str]]:
    """Return the cells of the first table of a text, without its head."""
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith("|")), len(lines))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line[1:].rstrip("|").split("|")])
    return rows


def section(text: str, title: str) -> str:
    """Return what stands below a heading of the second order, to the next one."""
    _, found, rest = text.partition(f"## {title}\n")
    assert found, f"no section {title}"
    return rest.split("\n## ")[0]
