"""Methods of near neighbours: each row depends on a few others, for many rows of few inputs."""
