"""From attempts to lessons: judges, distillers, selectors, and how structured replies are read."""
