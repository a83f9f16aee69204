from pathlib import Path

from lettermill.people import read_people
from lettermill.template import Template


def write_letters(template, people, folder):
    """Writes a letter for everybody in the list; the files."""
    form = Template(Path(template).read_text(encoding="utf-8"))
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    written = []
    for row in read_people(people):
        path = folder / f"{row['id']}.txt"
        with path.open("w", encoding="utf-8") as file:
            file.write(form.render(row))
        written.append(path)
    return written
