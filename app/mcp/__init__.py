"""Servers of MCP tools, by the official SDK: imported only where ``tools`` names some."""
