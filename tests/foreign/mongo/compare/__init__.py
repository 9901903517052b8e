"""Random commands at two servers of MongoDB's protocol, whose replies are compared."""
