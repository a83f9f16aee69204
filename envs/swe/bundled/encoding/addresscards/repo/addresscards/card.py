"""The card that is printed."""


def card(contact, width=30):
    inner = [line for line in (contact.name, contact.street, contact.town) if line]
    edge = "+" + "-" * (width + 2) + "+"
    return "\n".join([edge, *(f"| {line[:width]:<{width}} |" for line in inner), edge])
