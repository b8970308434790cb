package main

import (
	"fmt"
	"os"
	"path/filepath"
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
