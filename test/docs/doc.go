// Package docs tests the documentation: the snippets run and print what is shown, links and
// citations resolve, tables are complete, and the language is plain.
//
// The test runs a block that begins with ```sh run. A ```json block directly after it is the
// expected output.
package docs
