"""The operating system, processes, files of users, and the ports of time and chance."""
