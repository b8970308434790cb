// Package hostile tests attacks. The attackers are tenants, who can create namespaces, pods, services
// and endpoint slices, and a captured node: the attacker has the credentials of its agent and of its
// kubelet. Each test makes one attack, on real programs if they matter for the result. It shows that
// no other user or node loses an address, a name, a service, a stream or a node.
package hostile
