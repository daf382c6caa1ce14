"""Records in a shell: show, export, dump and produce them."""
