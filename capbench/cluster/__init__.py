"""One study on many processes and machines. The engine is Ray, which does scheduling, queues and restarts."""
