package main

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

// uninstallTimeout bounds the look whether the agent is to stay on its node.
const uninstallTimeout = 10 * time.Second

// What agent and doctor say of the container runtime's folders.
const (
	binDirUsage  = "folder in which the container runtime looks for plugins"
	confDirUsage = "folder in which the container runtime looks for networks"
)

// installFlags say where the plugin and the network configuration list are installed.
type installFlags struct {
	install                 bool
	plugin, binDir, confDir string
	daemonSet               string
}

func (f *installFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.install, "install-cni", false, "install coe-cni and, once calls are answered, the network configuration list for container runtimes; --cleanup removes both")
	flags.StringVar(&f.plugin, "cni-plugin", "", "file of coe-cni that is installed; empty: the one beside this program")
	flags.StringVar(&f.binDir, "cni-bin-dir", "/opt/cni/bin", binDirUsage)
	flags.StringVar(&f.confDir, "cni-conf-dir", "/etc/cni/net.d", confDirUsage)
	flags.StringVar(&f.daemonSet, "daemonset", "", "NAMESPACE/NAME of the DaemonSet whose pod the agent is: what was installed is removed when the agent ends because that is deleted")
}

func (f *installFlags) check() error {
	namespace, name, found := strings.Cut(f.daemonSet, "/")
	switch {
	case f.daemonSet != "" && (!found || namespace == "" || name == ""):
		return fmt.Errorf("--daemonset %q: want NAMESPACE/NAME", f.daemonSet)
	case f.daemonSet != "" && !f.install:
		return errors.New("--daemonset is given without --install-cni: there is nothing to be removed")
	}
	return nil
}

// config is what is installed for an agent that answers on a socket.
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

// answers asks the agent at a socket for its STATUS, as a runtime would.
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

// leave removes what was installed where the agent ends for good: its DaemonSet is
// deleted. One that is restarted, upgraded or drained leaves all as it is, and so does
// one that can't find out.
func (f *installFlags) leave(c install.Config) {
	if f.daemonSet == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), uninstallTimeout)
	defer cancel()
	deleted, err := isDeleted(ctx, f.daemonSet)
	if err != nil {
		c.Log.Warn("whether the agent is uninstalled is not known: what was installed stays; coe-bridge agent --cleanup removes it", "err", err)
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

// isDeleted tells whether a DaemonSet or its namespace is gone, or going. Who may not
// ask any more has lost the right together with them.
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
