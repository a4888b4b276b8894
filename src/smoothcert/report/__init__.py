"""Tables, figures and an HTML page from certification results files."""
