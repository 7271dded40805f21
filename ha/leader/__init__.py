"""Elections: who is master at a start, and the lease in etcd that a master holds."""
