"""Labelled data from files and from the Hub."""
