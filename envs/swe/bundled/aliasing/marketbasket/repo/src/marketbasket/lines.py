"""One line of a basket."""


def make_line(item, kilos, *notes):
    if kilos <= 0:
        raise ValueError(f"{kilos} kilos of {item}")
    return {"item": item, "kilos": kilos, "notes": list(notes)}


def price_of(line, prices):
    return round(prices[line["item"]] * line["kilos"])
