"""From attempts to lessons: judges, distillers, selectors, and the reading of structured replies."""
