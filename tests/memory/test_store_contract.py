"""SQLite and PostgreSQL keep the contract of a bank's database."""

from __future__ import annotations

import pytest
from store_contract import StoreContract

from core.memory.postgres.store import Postgres
from core.memory.sqlite.store import SqliteStore


class TestSqlite(StoreContract):
    def open(self, place, **how):
        return SqliteStore(place, **how)


class TestPostgres(StoreContract):
    @pytest.fixture
    def place(self, postgres):
        url = postgres.new()
        yield url
        postgres.drop(url)

    def open(self, place, **how):
        return Postgres().open(place, **how)
