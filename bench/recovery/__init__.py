"""Recovery: how long a job gives no results after one of its processes was killed."""
