"""MiniWoB++ and WebArena: tasks on web pages in a real browser."""
