package kube

// BridgeRole is the manifest of a service account for bridges, "bridge" in the namespace default. Its
// role may read what every bridge reads, and write what every bridge writes. A manifest can have
// further rules after it.
const BridgeRole = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: bridge, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bridge}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bridge}
subjects:
- {kind: ServiceAccount, name: bridge, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bridge}
rules:
- {apiGroups: [""], resources: [namespaces, nodes, pods, services], verbs: [list, watch]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies, servicecidrs], verbs: [list, watch]}
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}
- {apiGroups: [""], resources: [events], verbs: [create, patch]}
`
