package agent

import (
	"cmp"
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
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// attachment is what a call is about: a pod's link to a network.
type attachment struct {
	vif.Attachment
	network *network
	pod     pod
}

// pod is the pod of an attachment, as the caller names it.
type pod struct {
	namespace, name string
	uid             string // empty: not given
	// external: the caller does not use Kubernetes, and the agent creates the pod.
	external bool
}

func (p pod) String() string { return p.namespace + "/" + p.name }

// arguments are the keys of CNI_ARGS. Kubernetes runtimes give the first four; the COE_
// keys name the pod of a caller without Kubernetes.
type arguments struct {
	types.CommonArgs
	K8S_POD_NAMESPACE, K8S_POD_NAME, K8S_POD_UID types.UnmarshallableString
	K8S_POD_INFRA_CONTAINER_ID                   types.UnmarshallableString
	COE_NAMESPACE, COE_NAME                      types.UnmarshallableString
	IP, MAC                                      types.UnmarshallableString
}

// defaultNamespace is the namespace of an external pod if its caller names none.
const defaultNamespace = "default"

// primaryLink is the first link that runtimes request, the one with the default route. An
// external pod for this link has the name that the caller gives. The name of the link is
// appended for a container's other links.
const primaryLink = "eth0"

func newAttachment(r call.Request, n *network) (*attachment, error) {
	var args arguments
	if err := types.LoadArgs(r.Args, &args); err != nil {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS is invalid", err.Error())
	}
	at := &attachment{
		Attachment: vif.Attachment{Network: n.Name, Container: r.ContainerID, IfName: r.IfName, Netns: r.Netns},
		network:    n,
	}
	if err := n.wanted.takeArguments(args); err != nil {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS is invalid", err.Error())
	}
	at.pod = pod{namespace: string(args.K8S_POD_NAMESPACE), name: string(args.K8S_POD_NAME), uid: string(args.K8S_POD_UID)}
	if at.pod.namespace == "" {
		at.pod = externalPod(at.Attachment, args)
	}
	return at, nil
}

// takeArguments reads the requested addresses and MAC address from CNI_ARGS. Several
// addresses are separated by commas, as Multus does.
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

// externalPod returns the pod to create for an attachment. Its UID is derived from the
// attachment.
func externalPod(of vif.Attachment, args arguments) pod {
	p := pod{namespace: cmp.Or(string(args.COE_NAMESPACE), defaultNamespace), name: cmp.Or(string(args.COE_NAME), of.Container), external: true}
	p.uid = uuid.NewSHA1(uuid.NameSpaceURL, []byte("coe-cni:"+key(of))).String()
	if of.IfName != primaryLink {
		p.name += "-" + of.IfName
	}
	return p
}

// key identifies an attachment.
func key(of vif.Attachment) string { return of.Container + "/" + of.IfName }

// ownerPrefix starts the alias of a link, which names its owner.
const ownerPrefix = "coe-bridge:"

func owner(of vif.Attachment) string { return ownerPrefix + key(of) }

// uidLength is the length of a UID in its usual form.
const uidLength = 36

// is reports whether r is the record of the pod's interface. It compares UIDs only if
// the runtime gives one in the usual form: the UID of a static pod is a hash that the API
// server, and so the bridge, does not know.
func (p pod) is(r *uplink.Record) bool {
	return r.Primary && r.Namespace == p.namespace && r.Pod == p.name &&
		(len(p.uid) != uidLength || p.uid == r.PodUID)
}

// open opens the pod's network namespace, which must not be the node's. The caller closes
// it.
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
		return pod, noNamespace(at.Netns, fmt.Errorf("it is the node's own namespace"))
	}
	return pod, nil
}

// verifyNetns fails if ns is not a network namespace. The ioctl works only on namespaces,
// so the type of the file system is checked first.
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

// isGone reports whether the pod's namespace was removed. It returns false if its
// directory is missing too, because an agent in a container possibly cannot see it.
func isGone(of vif.Attachment) bool {
	if _, err := os.Stat(filepath.Dir(of.Netns)); err != nil {
		return false
	}
	_, err := os.Stat(of.Netns)
	return errors.Is(err, fs.ErrNotExist)
}
