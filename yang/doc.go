// Package yang contains the YANG modules of this program, the schema that is compiled from
// them, data trees that are instances of the schema, and a validator for JSON (RFC 7951) and
// XML (RFC 7950) bodies.
//
// Decoding has two steps. DecodeJSON or DecodeXML checks what can be checked locally (syntax,
// names, types, keys, duplicates, choices) and stores canonical values. Validate checks what
// needs a whole subtree (mandatory, unique, number of elements, when, leafrefs). Both report
// all errors that they find, as Errors.
//
// The package knows neither HTTP nor a datastore, nor the meaning of the data. It supports
// only the parts of YANG that the modules here use: Load refuses a module with must, anydata
// outside a notification, bits, binary, decimal64, instance-identifier, a union of quoted and
// unquoted types or with identities, or a when that is not "leaf = 'value'" on an augment. It
// ignores rpcs and features. Decoding does not add defaults to data.
package yang
