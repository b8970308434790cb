package ovsdb

// For the tests that write rows with the backend, and so cannot be in this package.
var (
	TestDatabase      = testDatabase
	RequireAsLibovsdb = requireAsLibovsdb
)
