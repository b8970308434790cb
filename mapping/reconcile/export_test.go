package reconcile

// Process compares and writes one batch of scopes, as Run does.
var Process = (*Loop).process
