"""One HTML file that shows what finished runs say: headline, table, plots, configuration and every episode."""
