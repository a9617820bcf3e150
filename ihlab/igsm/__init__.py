"""iGSM in the lab: how models write solutions of its problems, and pictures of problems and solutions."""
