package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/install"
)

// uninstallTimeout bounds the request whether the agent's DaemonSet is deleted.
const uninstallTimeout = 10 * time.Second

// The usage of the container runtime's folders, in agent and doctor.
const (
	binDirUsage  = "folder of the container runtime's plugins"
	confDirUsage = "folder of the container runtime's network configurations"
)

// installFlags has the flags of the installation of the plugin and the network
// configuration list.
type installFlags struct {
	install                 bool
	plugin, binDir, confDir string
	daemonSet               string
}

func (f *installFlags) register(set *pflag.FlagSet) {
	set.BoolVar(&f.install, "install-cni", false, "install coe-cni and, once the agent answers calls, the network configuration list for container runtimes; --cleanup removes both")
	set.StringVar(&f.plugin, "cni-plugin", "", "coe-cni program to install; default: the one beside this program")
	set.StringVar(&f.binDir, "cni-bin-dir", "/opt/cni/bin", binDirUsage)
	set.StringVar(&f.confDir, "cni-conf-dir", "/etc/cni/net.d", confDirUsage)
	set.StringVar(&f.daemonSet, "daemonset", "", "NAMESPACE/NAME of the agent's own DaemonSet; an agent that ends because it is deleted removes what it installed")
}

func (f *installFlags) check() error {
	namespace, name, found := strings.Cut(f.daemonSet, "/")
	switch {
	case f.daemonSet != "" && (!found || namespace == "" || name == ""):
		return fmt.Errorf("--daemonset %q: want NAMESPACE/NAME", f.daemonSet)
	case f.daemonSet != "" && !f.install:
		return errors.New("--daemonset is given without --install-cni: nothing is installed")
	}
	return nil
}

// config is what an agent with this socket installs.
func (f *installFlags) config(socket string, log *slog.Logger) (install.Config, error) {
	plugin := f.plugin
	if plugin == "" {
		own, err := os.Executable()
		if err != nil {
			return install.Config{}, fmt.Errorf("find coe-cni: %w; name it with --cni-plugin", err)
		}
		plugin = filepath.Join(filepath.Dir(own), install.PluginName)
	}
	return install.Config{
		Plugin: plugin, BinDir: f.binDir, ConfDir: f.confDir, Socket: socket, Log: log,
		Answers: func(ctx context.Context) error { return answers(ctx, socket) },
	}, nil
}

// answers asks the agent at a socket for its STATUS, as a runtime does.
func answers(ctx context.Context, socket string) error {
	answer, err := call.Do(ctx, socket, call.Request{Command: call.Status, Config: json.RawMessage(`{"cniVersion":"1.1.0","name":"coe-bridge","type":"coe-cni"}`)})
	if err != nil {
		return err
	}
	if answer.Error != nil {
		return answer.Error
	}
	return nil
}

// leave removes what was installed if the agent's DaemonSet is deleted. An agent that is
// restarted, upgraded or drained removes nothing, nor does one that cannot find out.
func (f *installFlags) leave(c install.Config) {
	if f.daemonSet == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), uninstallTimeout)
	defer cancel()
	deleted, err := isDeleted(ctx, f.daemonSet)
	if err != nil {
		c.Log.Warn("cannot find out whether the agent is uninstalled: the plugin and its configuration stay; coe-bridge agent --cleanup removes them", "err", err)
		return
	}
	if !deleted {
		return
	}
	if err := c.Remove(); err != nil {
		c.Log.Error("the plugin and its configuration are left on the node", "err", err)
		return
	}
	c.Log.Info("uninstalled", "daemonset", f.daemonSet)
}

// isDeleted reports whether a DaemonSet or its namespace is deleted, or being deleted. A
// refused request counts as deleted, because the agent's rights are deleted with them.
func isDeleted(ctx context.Context, daemonSet string) (bool, error) {
	api, err := rest.InClusterConfig()
	if err != nil {
		return false, err
	}
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return false, err
	}
	namespace, name, _ := strings.Cut(daemonSet, "/")
	is, err := client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && is.DeletionTimestamp == nil {
		in, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return err == nil && in.DeletionTimestamp != nil, err
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return true, nil
	}
	return false, err
}
