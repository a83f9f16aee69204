"""The file that is kept."""

import csv

HEAD = ["source", "target", "by"]


def export_csv(terms, path):
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEAD)
        for term in terms:
            writer.writerow([term.source, term.target, " ".join(term.by)])
