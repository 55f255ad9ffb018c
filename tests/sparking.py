"""Spark for tests: one small session, and a captured shop for it to read."""

import apsw
import httpx

from running import Running
from serving import wait_until
from tailrace.config import RetentionConfig

CONFS = {
    "spark.driver.extraJavaOptions": "-Xss4m -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


class Shop:
    """An SQLite database, captured by a server inside this process."""

    def __init__(self, directory, auth=None, token=None):
        self.directory = directory
        self.auth = auth
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        # The library that the server uses: two of them in one process would undo each other's locks.
        self.database = apsw.Connection(str(directory / "shop.db"))
        self.database.set_busy_timeout(60_000)
        self.database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, qty INTEGER, paid DECIMAL(9,2))")
        self.database.execute("CREATE TABLE notes (text TEXT)")
        self.start()

    def start(self, **retention):
        """Start the server; return when it captures."""
        url = f"sqlite:///{self.directory / 'shop.db'}"
        self.server = Running(self.directory / "data", self.auth, retention=RetentionConfig(**retention), shop=url)
        wait_until(lambda: self.info()["tables"], "the tables known")

    def info(self):
        answer = httpx.get(f"{self.server.url}/api/v1/bulk/shop", headers=self.headers, timeout=20)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def commit(self, *statements):
        """Run statements in one transaction."""
        self.database.execute("BEGIN IMMEDIATE")
        for statement in statements:
            self.database.execute(statement)
        self.database.execute("COMMIT")

    def insert(self, *keys):
        self.commit(*[f"INSERT INTO orders VALUES ({key}, 'item {key}', {key}, {key}.25)" for key in keys])

    def settle(self, head):
        """Wait until the log has so many changes."""
        wait_until(lambda: self.info()["head"] >= head, f"change {head} captured")
        assert self.info()["head"] == head

    def close(self):
        self.server.stop()
        self.database.close()
