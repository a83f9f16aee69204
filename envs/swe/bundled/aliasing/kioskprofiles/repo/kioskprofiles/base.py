"""What a kiosk is like unless somebody says otherwise."""

BASE = {
    "languages": ["de", "en"],
    "screen": {"brightness": 60, "rotate": False, "dim": {"after": 300, "to": 20}},
    "sound": {"volume": 3},
}
