// Package yang holds the YANG modules that this program speaks, the schema
// compiled from them, trees of data that are instances of the schema, and the
// validator of JSON (RFC 7951) and XML (RFC 7950) bodies over it.
//
// Reading goes in two steps: DecodeJSON or DecodeXML checks what can be seen in one place
// (syntax, names, types, keys, duplicates, choices) and stores canonical values;
// Validate checks what needs a whole subtree (mandatory, unique, how many
// elements, when, leafrefs). Both report all that they find, as Errors.
//
// The package knows neither HTTP nor a datastore nor what the data means. Of YANG
// it knows what the modules here use: Load refuses a module with must, anydata
// outside a notification, bits, binary, decimal64, instance-identifier, a union of
// quoted and unquoted types or with identities, or a when that is not "leaf =
// 'value'" on an augment. Defaults are not added to data. Rpcs and features are not
// looked at.
package yang
