package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/kube/tokenreview"
	"github.com/coe-bridge/coe-bridge/restconf/access"
)

// kubernetesFlags has the flags of the cluster that is watched.
type kubernetesFlags struct {
	kubeconfig    string
	inCluster     bool
	annotateQPS   string
	agentAccounts []string
	egressLabel   string
	egressIPs     bool
}

func (f *kubernetesFlags) register(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the Kubernetes cluster to watch; read again when it changes")
	set.BoolVar(&f.inCluster, "in-cluster", false, "watch the Kubernetes cluster that this process is a pod of, as its service account")
	set.StringVar(&f.annotateQPS, "annotate-qps", "200", "limit of pods that are annotated each second; 0 for none, inf for no limit")
	set.StringSliceVar(&f.agentAccounts, "agent-service-account", nil, "NAMESPACE/NAME of the service account of node agents, whose tokens have the audience "+tokenreview.Audience+"; the API server checks them")
	set.BoolVar(&f.egressIPs, "egress-ips", false, "let pods that EgressIPs select leave with their address, on OVN")
	set.StringVar(&f.egressLabel, "egress-label", "node-restriction.kubernetes.io/coe-bridge-egress", "label of the nodes that may hold egress addresses; with this prefix no kubelet can set it on its own node")
	_ = cmd.MarkFlagFilename("kubeconfig")
}

// config is the cluster to watch, or none if no flag names one.
func (f *kubernetesFlags) config(version string, log *slog.Logger) (cfg bridge.KubernetesConfig, err error) {
	if f.egressIPs {
		cfg.EgressLabel = f.egressLabel
	}
	cfg.AnnotateQPS, err = strconv.ParseFloat(f.annotateQPS, 64)
	if err != nil || cfg.AnnotateQPS < 0 || math.IsNaN(cfg.AnnotateQPS) {
		return cfg, fmt.Errorf("--annotate-qps %q: want a number, 0 for none, or inf for no limit", f.annotateQPS)
	}
	switch {
	case f.kubeconfig != "" && f.inCluster:
		return cfg, errors.New("two clusters to watch: --kubeconfig names one, --in-cluster means this pod's; give one of them")
	case f.kubeconfig == "" && !f.inCluster:
		return cfg, nil
	}
	cfg.API, err = kube.Connect(f.kubeconfig, version, log)
	return cfg, err
}

// tokens is how tokens of agents are checked, or empty if no flag names their accounts.
func (f *kubernetesFlags) tokens(api *rest.Config) (cfg access.TokenConfig, err error) {
	if len(f.agentAccounts) == 0 {
		return cfg, nil
	}
	for _, account := range f.agentAccounts {
		namespace, name, _ := strings.Cut(account, "/")
		if namespace == "" || name == "" || strings.Contains(name, "/") {
			return cfg, fmt.Errorf("--agent-service-account %q: want NAMESPACE/NAME", account)
		}
	}
	if api == nil {
		return cfg, errors.New("--agent-service-account is given without --kubeconfig and --in-cluster: the API server checks its tokens")
	}
	cfg.Accounts = f.agentAccounts
	cfg.Reviewer, err = tokenreview.New(api)
	return cfg, err
}
