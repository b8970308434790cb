package kubelab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// needs are the programs of a lab in addition to the programs of ovnhost, with their Debian packages.
var needs = []struct{ pkg, name string }{
	{"containerd", "/usr/bin/containerd"},
	{"runc", "/usr/sbin/runc"},
	{"containernetworking-plugins", "/usr/lib/cni/loopback"},
	{"openssl", "/usr/bin/openssl"},
}

// Missing returns the required Debian packages that are not installed.
func Missing() []string {
	missing := ovnhost.Missing()
	for _, n := range needs {
		if _, err := os.Stat(n.name); err != nil && !slices.Contains(missing, n.pkg) {
			missing = append(missing, n.pkg)
		}
	}
	return missing
}

// The sources of Programs.
var (
	agnhost = kube.Program{
		Title: "agnhost of Kubernetes " + kube.Version, Takes: "some seconds",
		Package: "k8s.io/kubernetes/test/images/agnhost",
		Name:    "agnhost-" + kube.Version, Binary: "agnhost", LDFlags: "-s -w",
	}
	coreDNS = kube.Program{
		Title: "CoreDNS v1.14.7", Takes: "half a minute",
		Package: "./dns", Name: "coredns-v1.14.7", Binary: "coredns", LDFlags: "-s -w",
	}
)

// The lab's own programs in this module.
const (
	nodePackage  = "github.com/coe-bridge/coe-bridge/test/lab/kubelab/node"
	pausePackage = "github.com/coe-bridge/coe-bridge/test/lab/kubelab/pause"
)

// Programs are the paths of external programs for the pods of a lab.
type Programs struct{ Agnhost, CoreDNS string }

// BuildPrograms builds them if the user's cache does not have them.
func BuildPrograms(ctx context.Context, progress io.Writer) (p Programs, err error) {
	if p.Agnhost, err = agnhost.Build(ctx, progress); err != nil {
		return p, err
	}
	p.CoreDNS, err = coreDNS.Build(ctx, progress)
	return p, err
}

// tools are the paths of the programs of a lab.
type tools struct {
	Programs
	hyperkube string
}

// Build builds the programs of labs if the user's cache does not have them.
func Build(ctx context.Context, progress io.Writer) error {
	_, err := buildTools(ctx, progress)
	return err
}

func buildTools(ctx context.Context, progress io.Writer) (t tools, err error) {
	if t.hyperkube, err = kube.Build(ctx, progress); err != nil {
		return t, err
	}
	t.Programs, err = BuildPrograms(ctx, progress)
	return t, err
}

// buildOwn builds a program of this module.
func buildOwn(ctx context.Context, pkg, target string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", target, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return nil
}
