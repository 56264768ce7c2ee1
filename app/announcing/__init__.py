"""Speaking first: what somebody wants said in the conversations of this process."""
