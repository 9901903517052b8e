"""In the place of redis-entraid, which logs in at Microsoft's servers: redis-py's tests import it. Those
that use it do not apply."""
