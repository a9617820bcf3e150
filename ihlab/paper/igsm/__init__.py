"""Analysis of iGSM: how models write solutions, and pictures of problems and solutions."""
