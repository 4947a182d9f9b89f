"""What notebook cells show: live pages of the kernel, and static pictures for saved notebooks."""
