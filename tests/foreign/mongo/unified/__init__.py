"""A runner of the unified tests of the MongoDB driver specifications, at a server of any address."""
