// Package kubelet tests coe-bridge in a real Kubernetes cluster. Real kubelets and containerd call the
// plugin, on two nodes with coe-bridge installed as docs/kubernetes.md says. The tests kill the parts
// of coe-bridge during their work. The cluster recovers without help, and the switches have exactly
// the ports of the running pods.
package kubelet
