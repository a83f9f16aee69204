from pathlib import Path

from notedrawer.names import file_name
from notedrawer.note import Note


class Drawer:
    def __init__(self, folder):
        self.folder = Path(folder)

    def path(self, title):
        return self.folder / file_name(title)

    def save(self, title, body):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path(title).write_text(Note(title, body).to_text(), encoding="utf-8")

    def load(self, title):
        """The body of a note; FileNotFoundError if there is none."""
        return self.read(self.path(title)).body

    def read(self, path):
        return Note.from_text(path.read_text(encoding="utf-8"))

    def titles(self):
        return sorted(self.read(path).title for path in self.folder.glob("*.md"))

    def rename(self, old, new):
        body = self.load(old)
        self.path(old).unlink()
        self.save(new, body)
