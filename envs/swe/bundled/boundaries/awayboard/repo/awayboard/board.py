"""The board: approved leave."""

from awayboard.requests import Request


class Refused(Exception):
    pass


class Board:
    def __init__(self, allowance: int) -> None:
        self.allowance = allowance
        self.approved: list[Request] = []

    def approve(self, request: Request) -> None:
        left = self.left(request.name)
        if request.cost() > left:
            raise Refused(f"{request.name} has {left} days left")
        self.approved.append(request)

    def left(self, name: str) -> int:
        return self.allowance - sum(request.cost() for request in self.approved if request.name == name)

    def away(self, day) -> list[str]:
        return sorted(request.name for request in self.approved if request.covers(day))
