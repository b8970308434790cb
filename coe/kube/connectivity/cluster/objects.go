package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
)

// Labels of the objects of a test.
const (
	// ownerLabel is on the namespaces of all tests.
	ownerLabel = "app.kubernetes.io/managed-by"
	owner      = "coe-bridge-connectivity-test"
	roleLabel  = "role"
	nodeLabel  = "node"
)

// account is the service account of the pods. It has no rights, and the pods have no token of it.
const account = "probe"

// How long a pod runs at most: for minLife, or spareLife after the end of the test.
const (
	minLife   = time.Hour
	spareLife = 5 * time.Minute
)

// lifeOf returns how long the pods of a test may run.
func lifeOf(ctx context.Context) time.Duration {
	if end, has := ctx.Deadline(); has {
		return max(minLife, time.Until(end)+spareLife)
	}
	return minLife
}

// createTimeout bounds the creation of the namespace, which an interrupt does not stop.
const createTimeout = 30 * time.Second

// newName returns the name of a namespace that no other test has.
func newName() string {
	return "connectivity-test-" + strings.ToLower(rand.Text()[:8])
}

// create creates the namespace, pods and services. If a pod or service is refused, its fact has the reason.
func (t *test) create(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace, Labels: map[string]string{
		ownerLabel: owner,
		// Clients on the host network need it. All other pods meet the level restricted.
		"pod-security.kubernetes.io/enforce": "privileged",
	}}}
	creating, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
	defer cancel()
	created, err := t.client.CoreV1().Namespaces().Create(creating, namespace, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", t.namespace, err)
	}
	t.uid = created.UID
	identity := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}, AutomountServiceAccountToken: new(bool)}
	if _, err := t.client.CoreV1().ServiceAccounts(t.namespace).Create(ctx, identity, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create service account %s: %w", account, err)
	}
	for i, n := range t.facts.Nodes {
		for _, role := range []connectivity.Role{connectivity.Client, connectivity.Server, connectivity.Host} {
			t.createPod(ctx, role, i, n.Name)
		}
		t.facts.Services = append(t.facts.Services, t.createService(ctx, "server", i, n.Name, corev1.ServiceTypeClusterIP, corev1.ProtocolTCP, corev1.ProtocolUDP))
		t.facts.NodePorts = append(t.facts.NodePorts, t.createService(ctx, "node-port", i, n.Name, corev1.ServiceTypeNodePort, corev1.ProtocolTCP, corev1.ProtocolUDP))
	}
	return ctx.Err()
}

// createPod creates the pod of a role on a node, and adds it to the facts.
func (t *test) createPod(ctx context.Context, role connectivity.Role, i int, node string) {
	fact := connectivity.Pod{Name: fmt.Sprintf("%s-%d", role, i+1), Node: node, Role: role}
	if _, err := t.client.CoreV1().Pods(t.namespace).Create(ctx, t.pod(fact), metav1.CreateOptions{}); err != nil {
		fact.Problem = err.Error()
	}
	t.facts.Pods = append(t.facts.Pods, fact)
}

// pod returns the manifest of a pod. The node is chosen, so that no scheduler is needed.
func (t *test) pod(fact connectivity.Pod) *corev1.Pod {
	args := []string{"pause"}
	if fact.Role == connectivity.Server {
		// It answers with its name, and accepts no commands, unlike other servers of the image.
		args = []string{"serve-hostname", "--http=false", "--tcp", "--udp", "--port=" + strconv.Itoa(connectivity.Port)}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fact.Name, Labels: map[string]string{roleLabel: string(fact.Role), nodeLabel: fact.Name}},
		Spec: corev1.PodSpec{
			NodeName:                      fact.Node,
			HostNetwork:                   fact.Role == connectivity.Host,
			ServiceAccountName:            account,
			EnableServiceLinks:            new(bool),
			TerminationGracePeriodSeconds: new(int64(1)),
			// A name server that does not answer must not take longer than the check.
			DNSConfig: &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "timeout", Value: new("1")}, {Name: "attempts", Value: new("1")}}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65534)), RunAsGroup: new(int64(65534)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "agnhost", Image: t.Image, Command: []string{agnhost}, Args: args,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(bool), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	if !t.Keep {
		pod.Spec.ActiveDeadlineSeconds = new(int64(t.life / time.Second))
	}
	return pod
}

// createService creates a service of a type for the server of a node. It returns what the API server
// has made of it.
func (t *test) createService(ctx context.Context, name string, i int, node string, kind corev1.ServiceType, protocols ...corev1.Protocol) connectivity.Service {
	fact := connectivity.Service{Name: fmt.Sprintf("%s-%d", name, i+1), Node: node, NodePorts: map[connectivity.Protocol]uint16{}}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: fact.Name},
		Spec: corev1.ServiceSpec{
			Type: kind, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			Selector: map[string]string{nodeLabel: fmt.Sprintf("%s-%d", connectivity.Server, i+1)},
		},
	}
	for _, p := range protocols {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: strings.ToLower(string(p)), Protocol: p, Port: connectivity.Port, TargetPort: intstr.FromInt32(connectivity.Port),
		})
	}
	created, err := t.client.CoreV1().Services(t.namespace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		fact.Problem = fmt.Sprintf("create service %s: %v", fact.Name, err)
		return fact
	}
	fact.Addresses = addresses(created.Spec.ClusterIPs)
	for _, p := range created.Spec.Ports {
		if p.NodePort > 0 {
			fact.NodePorts[connectivity.Protocol(p.Protocol)] = uint16(p.NodePort)
		}
	}
	return fact
}

// policy returns a network policy of the servers without rules, which denies all connections to them.
func policy(name string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{roleLabel: string(connectivity.Server)}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
}

// denyAll denies all connections to servers.
func (t *test) denyAll(ctx context.Context) error { return t.apply(ctx, policy("deny")) }

// allowFirst allows the connections of the first client.
func (t *test) allowFirst(ctx context.Context) error {
	p := policy("allow")
	first := &metav1.LabelSelector{MatchLabels: map[string]string{nodeLabel: fmt.Sprintf("%s-1", connectivity.Client)}}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: first}}}}
	return t.apply(ctx, p)
}

func (t *test) apply(ctx context.Context, p *networkingv1.NetworkPolicy) error {
	if _, err := t.client.NetworkingV1().NetworkPolicies(t.namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create network policy %s: %w", p.Name, err)
	}
	return nil
}

// cleanupTimeout bounds the removal of the namespace.
const cleanupTimeout = 2 * time.Minute

// cleanup removes the namespace that the test has created, also after ctx has ended, and waits until it is
// gone.
func (t *test) cleanup(ctx context.Context) error {
	if t.uid == "" {
		return nil
	}
	if t.Keep {
		t.Progress(fmt.Sprintf("kept namespace %s: kubectl delete namespace %s removes it", t.namespace, t.namespace))
		return nil
	}
	removing := t.Progress
	if ctx.Err() != nil {
		removing = t.Interrupted
	}
	removing("removing namespace " + t.namespace)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	err := t.client.CoreV1().Namespaces().Delete(ctx, t.namespace, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &t.uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // somebody else has removed it
		return nil
	}
	if err == nil {
		err = t.awaitGone(ctx)
	}
	if err != nil {
		return fmt.Errorf("remove namespace %s: %w: remove it with kubectl delete namespace %s", t.namespace, err, t.namespace)
	}
	return nil
}
