"""Tools of tool servers: offered to the model beside the client's, and called here."""
