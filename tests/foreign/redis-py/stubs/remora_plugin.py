"""A plugin of pytest: what redis-py's tests ask of a server in words that Remora does not have."""

import redis
from redis.commands.core import ManagementCommands

info_of_server = redis.Redis.info


def info(self, *args, **kwargs):
    """The tests leave out what is of newer releases of Redis than INFO names. Remora's INFO tells its own version;
    its ACL is that of Redis 7."""
    return {"redis_version": "7.0.15", "arch_bits": 64, **info_of_server(self, *args, **kwargs)}


def config_set(self, name, value):
    """CONFIG SET requirepass is not there: a rule of the user default does the same."""
    assert name == "requirepass", name
    rules = ["resetpass", f">{value}"] if value else ["nopass"]
    return self.execute_command("ACL SETUSER", "default", *rules)


redis.Redis.info = info
ManagementCommands.config_set = config_set
