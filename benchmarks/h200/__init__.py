"""The GPU runs behind the published figures: the jobs, their expected time, and a driver that can be stopped anywhere."""
