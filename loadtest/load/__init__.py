"""Users, shapes and bounds of load tests with Locust. Only a process that Locust starts may import `users`.

Importing Locust replaces Python's threads and sockets by gevent's in the whole process.
"""
