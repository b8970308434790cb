package deploy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// kubelet runs the only container of a pod as a process of this machine, like a real kubelet. The
// process has the files, environment, arguments and user of the pod, from ConfigMaps, Secrets and
// tokens of the API server. Its root has only these files and the program. Nodes share this
// machine's loopback, so the 127.0.0.1 of a container is the address of its node.
type kubelet struct {
	client   *kubernetes.Clientset
	api      *rest.Config
	node     string
	address  string            // of the node
	programs map[string]string // the program in the image of each container, by container name
	dir      string            // the folder with the node's files
}

// entries has the paths of programs in images.
var entries = map[string]string{"coe-bridge": "coe-bridge", "etcd": "usr/local/bin/etcd"}

// running is a running pod.
type running struct {
	*process
	kubelet   *kubelet
	pod       *corev1.Pod
	container *corev1.Container
}

// run starts a pod. The node's disk still has the data of an earlier pod.
func (k *kubelet) run(t *testing.T, pod *corev1.Pod) *running {
	t.Helper()
	require.Len(t, pod.Spec.Containers, 1)
	c := &pod.Spec.Containers[0]
	rootDir := filepath.Join(k.dir, c.Name)
	entry := filepath.Join(rootDir, entries[c.Name])
	k.install(t, k.programs[c.Name], entry)
	k.mount(t, pod, c, rootDir)
	env := k.environment(t, pod.Namespace, c)
	argv := append([]string{"/" + entries[c.Name]}, append(tail(c.Command), c.Args...)...)
	for i, a := range argv {
		argv[i] = strings.ReplaceAll(expand(a, env), "127.0.0.1", k.address)
	}
	cmd := exec.Command(entry)
	cmd.Path, cmd.Args, cmd.Dir = argv[0], argv, "/"
	cmd.Env = []string{}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	user := userOf(pod, c)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: rootDir, Credential: &syscall.Credential{Uid: user, Gid: user}}
	return &running{start(t, cmd), k, pod, c}
}

// tail returns a command without its name, because images have only one program.
func tail(command []string) []string {
	if len(command) == 0 {
		return nil
	}
	return command[1:]
}

func userOf(pod *corev1.Pod, c *corev1.Container) uint32 {
	if c.SecurityContext.RunAsUser != nil {
		return uint32(*c.SecurityContext.RunAsUser)
	}
	return uint32(*pod.Spec.SecurityContext.RunAsUser)
}

func (k *kubelet) install(t *testing.T, program, entry string) {
	t.Helper()
	if _, err := os.Stat(entry); err == nil {
		return
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(entry), 0o755))
	if os.Link(program, entry) == nil {
		return
	}
	from, err := os.Open(program)
	require.NoError(t, err)
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(entry, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(to, from)
	require.NoError(t, err)
	require.NoError(t, to.Close())
}

// mount writes the files of a pod's volumes.
func (k *kubelet) mount(t *testing.T, pod *corev1.Pod, c *corev1.Container, rootDir string) {
	t.Helper()
	volumes := map[string]corev1.Volume{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = v
	}
	group := 0
	if g := pod.Spec.SecurityContext.FSGroup; g != nil {
		group = int(*g)
	}
	for _, m := range c.VolumeMounts {
		at, v := filepath.Join(rootDir, m.MountPath), volumes[m.Name]
		require.NoError(t, os.MkdirAll(at, 0o755))
		switch {
		case v.Secret != nil:
			secret, err := k.client.CoreV1().Secrets(pod.Namespace).Get(t.Context(), v.Secret.SecretName, metav1.GetOptions{})
			if apierrors.IsNotFound(err) && v.Secret.Optional != nil && *v.Secret.Optional {
				continue
			}
			require.NoError(t, err)
			for key, content := range secret.Data {
				writeFile(t, filepath.Join(at, key), content, os.FileMode(*v.Secret.DefaultMode), group)
			}
		case v.ConfigMap != nil:
			config, err := k.client.CoreV1().ConfigMaps(pod.Namespace).Get(t.Context(), v.ConfigMap.Name, metav1.GetOptions{})
			require.NoError(t, err)
			for _, item := range v.ConfigMap.Items {
				require.Contains(t, config.Data, item.Key)
				writeFile(t, filepath.Join(at, item.Path), []byte(config.Data[item.Key]), 0o644, group)
			}
		default:
			require.NotNil(t, v.HostPath, "volume %s", v.Name)
		}
	}
	if *pod.Spec.AutomountServiceAccountToken {
		k.mountToken(t, pod, filepath.Join(rootDir, "var/run/secrets/kubernetes.io/serviceaccount"), group)
	}
}

// mountToken writes a token of the pod's service account that is bound to the pod.
func (k *kubelet) mountToken(t *testing.T, pod *corev1.Pod, at string, group int) {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	answer, err := k.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(t.Context(), pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(at, 0o755))
	writeFile(t, filepath.Join(at, "token"), []byte(answer.Status.Token), 0o440, group)
	writeFile(t, filepath.Join(at, "ca.crt"), k.api.CAData, 0o444, group)
}

func writeFile(t *testing.T, path string, content []byte, mode os.FileMode, group int) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, content, mode))
	require.NoError(t, os.Chmod(path, mode))
	require.NoError(t, os.Chown(path, 0, group))
}

// environment returns the environment of a container. env overrides envFrom.
func (k *kubelet) environment(t *testing.T, namespace string, c *corev1.Container) map[string]string {
	t.Helper()
	config := func(name string) map[string]string {
		m, err := k.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		return m.Data
	}
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		for name, value := range config(from.ConfigMapRef.Name) {
			env[name] = value
		}
	}
	fields := map[string]string{"status.hostIP": k.address, "spec.nodeName": k.node}
	for _, e := range c.Env {
		switch from := e.ValueFrom; {
		case from == nil:
			env[e.Name] = expand(e.Value, env)
		case from.FieldRef != nil:
			require.Contains(t, fields, from.FieldRef.FieldPath)
			env[e.Name] = fields[from.FieldRef.FieldPath]
		default:
			value, found := config(from.ConfigMapKeyRef.Name)[from.ConfigMapKeyRef.Key]
			require.True(t, found, "%s", e.Name)
			env[e.Name] = value
		}
	}
	return env
}

var reference = regexp.MustCompile(`\$\((\w+)\)`)

func expand(text string, env map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(r string) string {
		if value, found := env[reference.FindStringSubmatch(r)[1]]; found {
			return value
		}
		return r
	})
}

// becomesReady waits until the pod's probes succeed, and reports that to the API server.
func (r *running) becomesReady(t *testing.T, plane *kube.ControlPlane) {
	t.Helper()
	for _, probe := range []*corev1.Probe{r.container.StartupProbe, r.container.LivenessProbe, r.container.ReadinessProbe} {
		require.Eventually(t, func() bool { return r.probe(probe.HTTPGet) }, patience, poll, "probe %s of %s", probe.HTTPGet.Path, r.pod.Name)
	}
	status := kube.PodStatus{Phase: corev1.PodRunning, Ready: true}
	require.NoError(t, plane.SetPodStatus(t.Context(), r.pod.Namespace, r.pod.Name, status))
}

// anyone is the client for probes. Like kubelet, it does not verify certificates.
var anyone = &http.Client{Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
}}

func (r *running) probe(get *corev1.HTTPGetAction) bool {
	port := ""
	for _, p := range r.container.Ports {
		if p.Name == get.Port.StrVal {
			port = fmt.Sprint(p.ContainerPort)
		}
	}
	answer, err := anyone.Get(strings.ToLower(string(get.Scheme)) + "://" + r.kubelet.address + ":" + port + get.Path)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}
