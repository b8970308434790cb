// Package hostile holds the stories of attackers: tenants, who may create
// namespaces, pods, services and endpoint slices, and a captured node, whose
// agent's and kubelet's credentials are in wrong hands. Each test takes one step
// that an attacker would take, on real parts where it matters, and shows that
// nobody else loses an address, a name, a service, a stream or a node.
package hostile
