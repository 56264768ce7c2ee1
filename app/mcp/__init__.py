"""Servers of MCP tools, through the official SDK. Imported only if ``tools`` names some."""
