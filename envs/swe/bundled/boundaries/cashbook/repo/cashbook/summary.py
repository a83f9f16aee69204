"""What a period comes to."""

from collections import Counter

from cashbook.period import Period


def within(book, period):
    return [entry for entry in book if entry.day in period]


def balance(book, start, end):
    """The sum of a period, in cents."""
    return sum(entry.cents for entry in within(book, Period.of(start, end)))


def by_account(book, start, end):
    totals = Counter()
    for entry in within(book, Period.of(start, end)):
        totals[entry.account] += entry.cents
    return dict(totals)


def euros(cents):
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"


def report(book, start, end):
    """The totals as a table, the largest expense first, and the sum below."""
    rows = sorted(by_account(book, start, end).items(), key=lambda row: row[1])
    width = max([len(account) for account, _ in rows] + [5])
    lines = [str(Period.of(start, end))]
    lines += [f"{account:<{width}} {euros(cents):>10}" for account, cents in rows]
    return "\n".join([*lines, f"{'total':<{width}} {euros(balance(book, start, end)):>10}"])
