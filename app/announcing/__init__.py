"""Announcements: sentences that the robot says on request, unasked by the person it talks to."""
