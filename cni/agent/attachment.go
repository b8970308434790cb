package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/uuid"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// attachment is what a call is about: a pod's link to a network.
type attachment struct {
	ovs.Attachment
	network *network
	pod     pod
}

// pod is whose link it is, as the caller tells.
type pod struct {
	namespace, name string
	uid             string // empty: not told
	// foreign: the caller knows no Kubernetes, and the agent makes the pod.
	foreign bool
}

func (p pod) String() string { return p.namespace + "/" + p.name }

// arguments are those of CNI_ARGS, by the names of the fields. Kubernetes' runtimes give the first four; COE_ ones
// name the pod of a caller that knows no Kubernetes.
type arguments struct {
	types.CommonArgs
	K8S_POD_NAMESPACE, K8S_POD_NAME, K8S_POD_UID types.UnmarshallableString
	K8S_POD_INFRA_CONTAINER_ID                   types.UnmarshallableString
	COE_NAMESPACE, COE_NAME                      types.UnmarshallableString
	IP, MAC                                      types.UnmarshallableString
}

// The pod of a caller that knows no Kubernetes is in this namespace where it names none.
const defaultNamespace = "default"

// primaryLink is the link that runtimes ask for first, of the network that leads
// everywhere. A pod that is made for it has just the name that the caller gives; pods of
// a container's other links are named after them.
const primaryLink = "eth0"

func newAttachment(r call.Request, n *network) (*attachment, error) {
	var args arguments
	if err := types.LoadArgs(r.Args, &args); err != nil {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS is not good", err.Error())
	}
	at := &attachment{
		Attachment: ovs.Attachment{Network: n.Name, Container: r.ContainerID, IfName: r.IfName, Netns: r.Netns},
		network:    n,
	}
	if err := n.wanted.takeArguments(args); err != nil {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS is not good", err.Error())
	}
	at.pod = pod{namespace: string(args.K8S_POD_NAMESPACE), name: string(args.K8S_POD_NAME), uid: string(args.K8S_POD_UID)}
	if at.pod.namespace == "" {
		at.pod = foreignPod(at.Attachment, args)
	}
	return at, nil
}

// takeArguments takes what CNI_ARGS asks for. Who asks for several addresses writes commas
// between them, as Multus does.
func (w *wanted) takeArguments(args arguments) error {
	if args.IP != "" {
		for ip := range strings.SplitSeq(string(args.IP), ",") {
			if err := w.takeAddress(ip); err != nil {
				return err
			}
		}
	}
	return w.takeMAC(string(args.MAC))
}

// foreignPod is the pod that is made for an attachment. Its uid follows from that.
func foreignPod(of ovs.Attachment, args arguments) pod {
	p := pod{namespace: string(args.COE_NAMESPACE), name: string(args.COE_NAME), foreign: true}
	p.uid = uuid.NewSHA1(uuid.NameSpaceURL, []byte("coe-cni:"+key(of))).String()
	if p.namespace == "" {
		p.namespace = defaultNamespace
	}
	if p.name == "" {
		p.name = of.Container
	}
	if of.IfName != primaryLink {
		p.name += "-" + of.IfName
	}
	return p
}

// key is what tells attachments from each other.
func key(of ovs.Attachment) string { return of.Container + "/" + of.IfName }

// ownerPrefix begins what a link says of its owner.
const ownerPrefix = "coe-bridge:"

func owner(of ovs.Attachment) string { return ownerPrefix + key(of) }

// uidLength is that of a uid in its usual form.
const uidLength = 36

// is tells whether a record is that of the pod's interface. A static pod's uid is a
// hash that the API server, and so the bridge, does not know.
func (p pod) is(r *uplink.Record) bool {
	return r.Primary && r.Namespace == p.namespace && r.Pod == p.name &&
		(len(p.uid) != uidLength || p.uid == r.PodUID)
}

// open opens the pod's network namespace, which is not the agent's own. The caller
// closes it.
func (at *attachment) open(node netns.NsHandle) (netns.NsHandle, error) {
	pod, err := netns.GetFromPath(at.Netns)
	if err != nil {
		return pod, noNamespace(at.Netns, err)
	}
	if err := verifyNetns(pod); err != nil {
		_ = pod.Close()
		return pod, noNamespace(at.Netns, err)
	}
	if pod.Equal(node) {
		_ = pod.Close()
		return pod, noNamespace(at.Netns, fmt.Errorf("it is the node's own"))
	}
	return pod, nil
}

// verifyNetns fails if a file is not a network namespace. The kernel answers only for files
// that are namespaces at all.
func verifyNetns(ns netns.NsHandle) error {
	var is unix.Statfs_t
	if err := unix.Fstatfs(int(ns), &is); err != nil {
		return err
	}
	if is.Type != unix.NSFS_MAGIC {
		return errors.New("it is not a namespace")
	}
	kind, err := unix.IoctlRetInt(int(ns), unix.NS_GET_NSTYPE)
	if err == nil && kind != unix.CLONE_NEWNET {
		err = errors.New("it is not a network namespace")
	}
	return err
}

func noNamespace(path string, err error) error {
	return types.NewError(types.ErrInvalidNetNS, "open the pod's network namespace "+path, err.Error())
}

// isGone tells whether the pod's namespace is no more. Where not even its folder is
// seen, that is not known: an agent in a container may not have it.
func isGone(of ovs.Attachment) bool {
	if _, err := os.Stat(filepath.Dir(of.Netns)); err != nil {
		return false
	}
	_, err := os.Stat(of.Netns)
	return errors.Is(err, fs.ErrNotExist)
}
