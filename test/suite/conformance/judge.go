package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

// judge fails when a test has not passed.
func judge(results []result) error {
	failed := 0
	for _, r := range results {
		if r.err != nil {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d tests have not passed: see their logs, named above, and the logs of the cluster beside them", failed, len(results))
	}
	return nil
}

// emptyFolder creates an empty folder, and returns its full path. It removes former contents.
func emptyFolder(name string) (string, error) {
	dir, err := filepath.Abs(name)
	if err != nil {
		return "", fmt.Errorf("find folder of logs: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("remove the logs of the last run: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make folder of logs: %w", err)
	}
	return dir, nil
}

// keepLogs copies the logs of the cluster, which are deleted with it: the logs of processes, nodes
// and pods.
func keepLogs(lab *kubelab.Lab, to string) error {
	errs := []error{os.CopyFS(filepath.Join(to, "cluster"), os.DirFS(lab.Logs()))}
	for _, n := range lab.Nodes {
		errs = append(errs, os.CopyFS(filepath.Join(to, "cluster", n.Name), os.DirFS(n.Logs())))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("keep the cluster's logs: %w", err)
	}
	return nil
}
