"""Tool calls as language models write them: syntax, parsing, grammar. No I/O, no llama.cpp."""
