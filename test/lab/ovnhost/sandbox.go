package ovnhost

import (
	"context"
	"fmt"
)

// Sandbox creates the network namespace of a pod that another program attaches, such as the CNI plugin, and returns its path.
func (l *Lab) Sandbox(ctx context.Context, pod string) (path string, err error) {
	name := l.Namespace(pod)
	if err := l.addNamespace(ctx, name); err != nil {
		return "", fmt.Errorf("make sandbox of pod %s: %w", pod, err)
	}
	return namespacePath(name), nil
}

// RemoveSandbox ends the processes of a sandbox and removes it. It is not an error if the sandbox does not exist.
func (l *Lab) RemoveSandbox(ctx context.Context, pod string) error {
	if err := l.closePod(pod); err != nil {
		return err
	}
	if err := removeNamespace(ctx, l.Namespace(pod)); err != nil {
		return fmt.Errorf("remove sandbox of pod %s: %w", pod, err)
	}
	return nil
}
