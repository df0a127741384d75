"""Plans that were found best, kept in a file that many processes read and write."""
