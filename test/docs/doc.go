// Package docs holds the README and the documents to what they say: the commands
// in them work and print what is printed there, links lead somewhere, and what
// must be explained is.
//
// A block that begins with ```sh run is run; a ```json block right after it is
// what it prints.
package docs
