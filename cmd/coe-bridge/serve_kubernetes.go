package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/coe/kube"
)

// kubernetesFlags are the flags of the cluster that is watched.
type kubernetesFlags struct {
	kubeconfig  string
	inCluster   bool
	annotateQPS string
}

func (f *kubernetesFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the Kubernetes cluster to watch; read again when it changes")
	flags.BoolVar(&f.inCluster, "in-cluster", false, "watch the Kubernetes cluster that this process is a pod of, as its service account")
	flags.StringVar(&f.annotateQPS, "annotate-qps", "200", "how many pods a second get their annotation; 0: none, inf: as many as the API server takes")
	_ = cmd.MarkFlagFilename("kubeconfig")
}

// config is the cluster to watch, none where no flag names one.
func (f *kubernetesFlags) config(log *slog.Logger) (cfg bridge.KubernetesConfig, err error) {
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
