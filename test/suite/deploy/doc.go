// Package deploy holds what deploy/kubernetes and docs/kubernetes.md ship to what
// they say: the manifests are applied to a real API server, the documented commands
// run as they are printed, and the pods that come of it run as processes on this
// machine, with the users, files and arguments that the manifests give them, and
// with exactly the rights of their role.
package deploy
