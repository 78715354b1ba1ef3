"""What `campaign doctor` looks at: software, scheduler, storage. Each look is a function that gives `Check`s."""
