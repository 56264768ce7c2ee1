"""Echo of one's own voice, solved in software: ``canceller`` cleans, ``detector`` decides,
``delay`` finds how long a remote client's echo takes. Pure; numpy; 16 kHz mono."""
