from lettermill.template import Template


def test_fields():
    assert Template("Dear {name} of {CITY}, dear {name}").fields() == ["city", "name"]


def test_render():
    row = {"name": "Ann", "city": "Ulm"}
    assert Template("Dear {name},\n{CITY}").render(row) == "Dear Ann,\nULM"


def test_values_are_no_templates():
    assert Template("{name}").render({"name": "{city}"}) == "{city}"
