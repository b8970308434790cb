// Package deploy tests the manifests of deploy/kubernetes and the guide docs/kubernetes.md. The
// manifests are applied to a real API server, and the documented commands run as they are printed.
// The resulting pods run as processes on this machine, with the users, files and arguments of the
// manifests, and with exactly the rights of their role.
package deploy
