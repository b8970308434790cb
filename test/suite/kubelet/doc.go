// Package kubelet holds coe-bridge to what a real Kubernetes cluster does with it: real
// kubelets and containerd call the plugin, on two nodes on which coe-bridge was installed
// as docs/kubernetes.md says. Its parts are killed in the middle of what they do; the
// cluster heals without a hand, and the switches have exactly the living pods' ports.
package kubelet
