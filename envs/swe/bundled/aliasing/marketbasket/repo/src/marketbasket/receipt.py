"""The receipt."""

from marketbasket.lines import price_of


def receipt(basket):
    rows = []
    for line in basket.contents():
        rows.append(f"{line['item']:<12} {line['kilos']:>5} kg {price_of(line, basket.prices) / 100:>7.2f}")
        rows += [f"  ({note})" for note in line["notes"]]
    rows += [f"{'voucher ' + code:<21} {-cents / 100:>7.2f}" for code, cents in basket.vouchers.items()]
    return "\n".join([*rows, f"{'total':<21} {basket.total() / 100:>7.2f}"])
