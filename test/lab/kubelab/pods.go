package kubelab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// Port is a pod's port on the switch of its node.
type Port struct {
	Name  string
	Pod   string // "namespace:pod"
	UID   string // of the pod
	Netns string // the pod's network namespace, by its path on the node
}

// Ports returns the pods' ports on the node's switch, sorted by pod.
func (n *Node) Ports(ctx context.Context) ([]Port, error) {
	rows, err := n.interfaces(ctx)
	if err != nil {
		return nil, err
	}
	var ports []Port
	for _, row := range rows {
		if netns := row.ids["coe-netns"]; netns != "" {
			ports = append(ports, Port{Name: row.name, Pod: row.ids["iface-id"], UID: row.ids["iface-id-ver"], Netns: netns})
		}
	}
	slices.SortFunc(ports, func(a, b Port) int { return strings.Compare(a.Pod, b.Pod) })
	return ports, nil
}

// OwnPorts returns the names of the ports on the node's switch that are the node's own.
func (n *Node) OwnPorts(ctx context.Context) (names []string, err error) {
	rows, err := n.interfaces(ctx)
	for _, row := range rows {
		if row.ids["coe-node"] != "" {
			names = append(names, row.name)
		}
	}
	return names, err
}

// interfaces returns the interfaces of the node's switch.
func (n *Node) interfaces(ctx context.Context) ([]interfaceRow, error) {
	out, err := n.lab.OVN.Host(n.Name).VSCtl(ctx, "--format=json", "--columns=name,external_ids", "list", "Interface")
	if err != nil {
		return nil, err
	}
	var table struct{ Data []interfaceRow }
	if err := json.Unmarshal([]byte(out), &table); err != nil {
		return nil, fmt.Errorf("read ports of node %s: %w", n.Name, err)
	}
	return table.Data, nil
}

// interfaceRow is a row of the columns name and external_ids.
type interfaceRow struct {
	name string
	ids  map[string]string
}

// UnmarshalJSON decodes the notation of RFC 7047, section 5.1: ["map", [[key, value], ...]].
func (r *interfaceRow) UnmarshalJSON(text []byte) error {
	var pairs [][2]string
	var ids = []any{new(string), &pairs}
	if err := json.Unmarshal(text, &[]any{&r.name, &ids}); err != nil {
		return err
	}
	r.ids = map[string]string{}
	for _, p := range pairs {
		r.ids[p[0]] = p[1]
	}
	return nil
}

// Place is a network in which programs can run: of a pod, a node, or outside of all nodes.
type Place struct {
	Name    string
	Address netip.Addr
	netns   string // a path that this process can open
}

// Pod returns the network of an attached pod.
func (l *Lab) Pod(ctx context.Context, namespace, name string) (Place, error) {
	pod, err := l.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Place{}, fmt.Errorf("find pod %s/%s: %w", namespace, name, err)
	}
	address, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return Place{}, fmt.Errorf("find pod %s/%s: address: %w", namespace, name, err)
	}
	n := l.Node(pod.Spec.NodeName)
	ports, err := n.Ports(ctx)
	if err != nil {
		return Place{}, err
	}
	i := slices.IndexFunc(ports, func(p Port) bool { return p.UID == string(pod.UID) }) // an earlier pod may have the same name
	if i < 0 {
		return Place{}, fmt.Errorf("find pod %s/%s: node %s has no port of it", namespace, name, n.Name)
	}
	netns, err := n.path(ports[i].Netns)
	return Place{namespace + "/" + name, address, netns}, err
}

// path returns the path of a file of the running node for this process.
func (n *Node) path(file string) (string, error) {
	pid, err := n.PID()
	if err != nil {
		return "", err
	}
	// On the node /var/run is a link to /run. From here the link would lead to this machine's /run.
	return filepath.Join("/proc", strconv.Itoa(pid), "root", strings.Replace(file, "/var/run/", "/run/", 1)), nil
}

// Has reports whether a file exists on the running node.
func (n *Node) Has(file string) bool {
	path, err := n.path(file)
	if err != nil {
		return false
	}
	_, err = os.Stat(path)
	return err == nil
}

// Place returns the node's network.
func (n *Node) Place() Place {
	return Place{n.Name, n.Address, filepath.Join("/run/netns", n.lab.OVN.Namespace(n.Name))}
}

// Outside returns a network outside of the cluster that nodes can reach.
func (l *Lab) Outside() Place {
	return Place{"outside", ovnhost.Central, filepath.Join("/run/netns", l.OVN.Namespace(ovnhost.CentralNamespace))}
}

// Command returns a program that runs in the place's network.
func (p Place) Command(ctx context.Context, argv ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + p.netns, "--"}, argv...)...)
}

// Exec runs a program in the place's network, and returns its output. An error includes its error output.
func (p Place) Exec(ctx context.Context, argv ...string) (string, error) {
	cmd := p.Command(ctx, argv...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("run %s at %s: %w: %s", strings.Join(argv, " "), p.Name, err, out)
	}
	return string(out), nil
}

// Ping sends one echo request, and waits a second for the answer.
func (p Place) Ping(ctx context.Context, to netip.Addr) error {
	_, err := p.Exec(ctx, "ping", "-n", "-c", "1", "-W", "1", to.String())
	return err
}

// Get fetches a page from the place's network.
func (p Place) Get(ctx context.Context, url string) (string, error) {
	return p.get(ctx, url, "5")
}

func (p Place) get(ctx context.Context, url, seconds string) (string, error) {
	return p.Exec(ctx, "curl", "--silent", "--show-error", "--fail", "--max-time", seconds, url)
}

// apiClusterIP is the cluster IP of kubernetes.default: the first address of ServiceCIDR.
const apiClusterIP = "10.96.0.1"

// GetAPI sends an anonymous request to the API server at the cluster IP of kubernetes.default, which is in its certificate.
func (l *Lab) GetAPI(ctx context.Context, from Place, path string) (string, error) {
	return from.Exec(ctx, "curl", "--silent", "--show-error", "--fail", "--max-time", "5",
		"--cacert", filepath.Join(l.access.dir, certificateFile), "--resolve", "kubernetes.default:443:"+apiClusterIP, "https://kubernetes.default"+path)
}

// dialSeconds bounds Dial. It is longer than the 5 s after which a resolver sends a lost request again: the userspace datapath of
// Open vSwitch loses packets of tunnels while links of the node change.
const dialSeconds = "15"

// Dial lets the test program of a pod fetch a page, with the pod's name server, and returns the page. The request to the test
// program comes from another place.
func (p Place) Dial(ctx context.Context, pod Place, host string, port int, path string) (string, error) {
	url := fmt.Sprintf("http://%s:8080/dial?host=%s&port=%d&protocol=http&request=%s&tries=1", pod.Address, host, port, path)
	out, err := p.get(ctx, url, dialSeconds)
	if err != nil {
		return "", err
	}
	var answer struct{ Responses, Errors []string }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return "", fmt.Errorf("read what %s was answered: %w: %s", pod.Name, err, out)
	}
	if len(answer.Responses) != 1 {
		return "", fmt.Errorf("%s fetches http://%s:%d/%s: %s", pod.Name, host, port, path, strings.Join(answer.Errors, "; "))
	}
	return answer.Responses[0], nil
}
