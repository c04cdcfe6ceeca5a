"""What a person deploys: the package, the template, the stack. `python -m infra --help`."""
